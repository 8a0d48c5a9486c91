"""Warm pools: what their agents were made from, how full each pool is, what became of jobs."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SPAWNS = """
ALTER TABLE spawns ADD COLUMN label_set_digest text;
CREATE INDEX spawns_prespawned ON spawns (scaler) WHERE warm AND job_id IS NULL;
"""

POOLS = """
CREATE TABLE warm_pools (
    scaler text NOT NULL,
    label_set text NOT NULL,
    target integer NOT NULL CHECK (target >= 0),
    short integer NOT NULL CHECK (short >= 0),
    why text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scaler, label_set)
);

CREATE TABLE warm_counts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scaler text NOT NULL,
    label_set text NOT NULL,
    what text NOT NULL CHECK (what IN
        ('hit', 'miss-shape', 'miss-image', 'miss-none-ready', 'lost', 'spawn', 'reap')),
    n bigint NOT NULL CHECK (n > 0)
);
"""


def upgrade() -> None:
    for part in (SPAWNS, POOLS):
        op.execute(part)


def downgrade() -> None:
    op.execute("DROP TABLE warm_counts")
    op.execute("DROP TABLE warm_pools")
    op.execute("DROP INDEX spawns_prespawned")
    op.execute("ALTER TABLE spawns DROP COLUMN label_set_digest")
