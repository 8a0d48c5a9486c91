"""What a free slot takes next is found without reading all that waits for one."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

UP = """
CREATE INDEX spawns_reserved_of_scaler
    ON spawns (machine_id, backend_type, scaler, reserved_at, agent_id) WHERE state = 'reserved';
DROP INDEX spawns_reserved;
"""

DOWN = """
CREATE INDEX spawns_reserved ON spawns (machine_id, backend_type, reserved_at)
    WHERE state = 'reserved';
DROP INDEX spawns_reserved_of_scaler;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
