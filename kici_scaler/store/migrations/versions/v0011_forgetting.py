"""Claims and deliveries past their retention are found without reading those that are not."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

UP = """
CREATE INDEX claims_past ON claims ((coalesce(expires_at, created_at)));
CREATE INDEX event_deliveries_owed_since ON event_deliveries (created_at) WHERE state = 'pending';
"""

DOWN = """
DROP INDEX event_deliveries_owed_since;
DROP INDEX claims_past;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
