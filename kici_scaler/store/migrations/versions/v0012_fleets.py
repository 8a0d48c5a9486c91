"""Machines that a worker reaches by SSH: where each is, and which worker drives it."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE machines
    ADD COLUMN address text,
    ADD COLUMN target jsonb,
    ADD COLUMN note text,
    ADD COLUMN driver text,
    ADD COLUMN driver_until timestamptz,
    ADD CONSTRAINT machines_driver CHECK ((driver IS NULL) = (driver_until IS NULL)),
    ADD CONSTRAINT machines_target CHECK ((address IS NULL) = (target IS NULL));
"""

DOWN = """
DELETE FROM machines WHERE address IS NOT NULL;
ALTER TABLE machines DROP COLUMN address, DROP COLUMN target, DROP COLUMN note,
    DROP COLUMN driver, DROP COLUMN driver_until;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
