"""The oldest agent of a pool that waits for a job is found without reading the others."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

UP = """
CREATE INDEX spawns_ready ON spawns (scaler, label_set_index, idle_at, agent_id)
    WHERE warm AND job_id IS NULL AND state = 'idle';
"""

DOWN = """
DROP INDEX spawns_ready;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
