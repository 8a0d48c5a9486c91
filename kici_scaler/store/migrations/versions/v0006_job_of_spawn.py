"""A quick way from a job to its spawns in every state, for the deletion of old requests."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX spawns_of_job ON spawns (job_id) WHERE job_id IS NOT NULL")


def downgrade() -> None:
    op.execute("DROP INDEX spawns_of_job")
