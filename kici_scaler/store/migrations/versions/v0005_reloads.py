"""What a reload leaves behind: its summary, how long a scaler stands so, who cannot run where."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE config_revisions ADD COLUMN summary text NOT NULL DEFAULT '';

ALTER TABLE scaler_states ADD COLUMN since timestamptz NOT NULL DEFAULT clock_timestamp();
UPDATE scaler_states SET since = changed_at;

CREATE TABLE machine_scalers (
    machine_id text NOT NULL,
    backend_type text NOT NULL,
    scaler text NOT NULL,
    reason text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (machine_id, backend_type, scaler),
    FOREIGN KEY (machine_id, backend_type) REFERENCES machines ON DELETE CASCADE
);
"""

DOWN = """
DROP TABLE machine_scalers;
ALTER TABLE scaler_states DROP COLUMN since;
ALTER TABLE config_revisions DROP COLUMN summary;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
