"""Addresses of microVMs: each machine's network is its own, each address one agent's."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE guest_addresses (
    machine_id text NOT NULL,
    address inet NOT NULL,
    agent_id text NOT NULL UNIQUE,
    scaler text NOT NULL,
    tap text NOT NULL CHECK (length(tap) <= 15),
    mac text NOT NULL,
    allocated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (machine_id, address),
    UNIQUE (machine_id, tap)
);
"""

DOWN = """
DROP TABLE guest_addresses;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
