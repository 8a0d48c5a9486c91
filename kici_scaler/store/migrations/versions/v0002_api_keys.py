"""Keys that callers of the front show, and quick ways to what a gateway owes its agents."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

API_KEYS = """
CREATE TABLE api_keys (
    id text PRIMARY KEY,
    name text NOT NULL,
    scope text NOT NULL CHECK (scope IN ('operator', 'dispatcher', 'agent')),
    secret_hash bytea NOT NULL UNIQUE CHECK (length(secret_hash) = 32),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz
);
CREATE UNIQUE INDEX api_keys_one_live_name ON api_keys (name) WHERE revoked_at IS NULL;
"""

ERRANDS = """
CREATE INDEX spawns_to_be_offered ON spawns (agent_id)
    WHERE state = 'idle' AND job_id IS NOT NULL;
CREATE INDEX scale_requests_called_off ON scale_requests (job_id)
    WHERE cancel_reason IS NOT NULL AND finished_at IS NULL;
"""


def upgrade() -> None:
    op.execute(API_KEYS)
    op.execute(ERRANDS)


def downgrade() -> None:
    op.execute("DROP INDEX scale_requests_called_off")
    op.execute("DROP INDEX spawns_to_be_offered")
    op.execute("DROP TABLE api_keys")
