"""Agents that no scaler made: the job each has, and what keys let them be.

A job has a spawn or such an agent, never both: a spawn that holds a job refers to it by a
key that exists only while no such agent has it.
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

REQUESTS = """
ALTER TABLE scale_requests
    ADD COLUMN static_agent text,
    ADD COLUMN static_deadline_at timestamptz,
    ADD COLUMN static_due_at timestamptz,
    ADD COLUMN static_due_count integer NOT NULL DEFAULT 0,
    ADD COLUMN by_spawn boolean GENERATED ALWAYS AS (static_agent IS NULL) STORED,
    ADD CONSTRAINT scale_requests_static_is_whole CHECK (
        (static_agent IS NULL) = (static_deadline_at IS NULL)
        AND (static_agent IS NULL) = (static_due_at IS NULL)),
    ADD CONSTRAINT scale_requests_static_has_job CHECK (
        static_agent IS NULL OR state IN ('assigned', 'running')),
    ADD CONSTRAINT scale_requests_by_spawn_key UNIQUE (job_id, by_spawn);
CREATE UNIQUE INDEX scale_requests_one_per_static_agent ON scale_requests (static_agent)
    WHERE static_agent IS NOT NULL;
CREATE INDEX scale_requests_static_due ON scale_requests (static_due_at)
    WHERE static_due_at IS NOT NULL;
"""

SPAWNS = """
ALTER TABLE spawns
    ADD COLUMN holds_job boolean GENERATED ALWAYS AS (
        CASE WHEN state NOT IN ('destroying', 'quarantined') THEN true END) STORED;
ALTER TABLE spawns
    DROP CONSTRAINT spawns_job_id_fkey,
    ADD CONSTRAINT spawns_job_id_fkey FOREIGN KEY (job_id, holds_job)
        REFERENCES scale_requests (job_id, by_spawn);
"""

AGENTS = """
ALTER TABLE agents
    ADD COLUMN stopping text,
    ADD COLUMN resting_until timestamptz,
    ADD CONSTRAINT agents_static_only CHECK (
        spawn_id IS NULL OR (stopping IS NULL AND resting_until IS NULL));
CREATE INDEX agents_static ON agents (agent_id) WHERE spawn_id IS NULL;
ALTER TABLE api_keys
    ADD COLUMN labels text[],
    ADD COLUMN gate text[] NOT NULL DEFAULT '{}';
"""


def upgrade() -> None:
    for part in (REQUESTS, SPAWNS, AGENTS):
        op.execute(part)


def downgrade() -> None:
    op.execute("ALTER TABLE api_keys DROP COLUMN labels, DROP COLUMN gate")
    op.execute("DROP INDEX agents_static")
    op.execute("ALTER TABLE agents DROP COLUMN stopping, DROP COLUMN resting_until")
    op.execute(
        "ALTER TABLE spawns DROP CONSTRAINT spawns_job_id_fkey, DROP COLUMN holds_job,"
        " ADD CONSTRAINT spawns_job_id_fkey FOREIGN KEY (job_id) REFERENCES scale_requests (job_id)"
    )
    op.execute(
        "ALTER TABLE scale_requests DROP CONSTRAINT scale_requests_by_spawn_key,"
        " DROP COLUMN by_spawn, DROP COLUMN static_agent, DROP COLUMN static_deadline_at,"
        " DROP COLUMN static_due_at, DROP COLUMN static_due_count"
    )
