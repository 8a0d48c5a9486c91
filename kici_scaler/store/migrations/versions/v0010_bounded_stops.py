"""Until when an agent that no scaler made has to stop a job that is not its own any more."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE agents ADD COLUMN stopping_until timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE agents DROP COLUMN stopping_until")
