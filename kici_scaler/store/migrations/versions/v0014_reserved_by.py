"""Who reserved an agent, and under which configuration, stays known after it is gone."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE outcomes ADD COLUMN owner text, ADD COLUMN revision_id bigint")


def downgrade() -> None:
    op.execute("ALTER TABLE outcomes DROP COLUMN owner, DROP COLUMN revision_id")
