"""Which server, on which of its timelines, wrote the rows; a change of it holds things back.

The function answers NULL where a role may not ask, and on a server that only reads.
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# The timeline is the first eight digits of a log file's name, and is new from the first write
# after a promotion on; the control file would tell it only after the next checkpoint.
UP = """
CREATE FUNCTION kici_server_identity() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT system_identifier FROM pg_control_system()) || '/'
        || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

CREATE TABLE server_identity (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    identity text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    held_since timestamptz
);
INSERT INTO server_identity (identity)
    SELECT identity FROM (SELECT kici_server_identity() AS identity) AS told
    WHERE identity IS NOT NULL;
"""

DOWN = """
DROP TABLE server_identity;
DROP FUNCTION kici_server_identity();
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
