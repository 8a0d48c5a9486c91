"""The tables that one job needs from end to end."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

REVISIONS = """
CREATE TABLE config_revisions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL,
    document jsonb NOT NULL,
    source text NOT NULL,
    author text NOT NULL,
    active boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX config_revisions_one_active ON config_revisions (active) WHERE active;

CREATE TABLE scaler_states (
    scaler text PRIMARY KEY,
    standing text NOT NULL DEFAULT 'active'
        CHECK (standing IN ('active', 'paused', 'retiring', 'degraded')),
    reason text NOT NULL DEFAULT '',
    revision_id bigint REFERENCES config_revisions (id),
    failure_streak integer NOT NULL DEFAULT 0 CHECK (failure_streak >= 0),
    backoff_until timestamptz,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE settings (
    scope text NOT NULL DEFAULT '',
    key text NOT NULL,
    value jsonb NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by text NOT NULL,
    PRIMARY KEY (scope, key)
);

CREATE TABLE duties (
    duty text PRIMARY KEY,
    ticked_at timestamptz NOT NULL,
    reached bigint NOT NULL DEFAULT 0
);

CREATE TABLE observation (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    watched_at timestamptz NOT NULL,
    grace_until timestamptz NOT NULL
);

CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    detail jsonb NOT NULL DEFAULT '{}'
);
"""

PLACES = """
CREATE TABLE machines (
    machine_id text NOT NULL,
    backend_type text NOT NULL,
    boot_id text NOT NULL,
    state text NOT NULL DEFAULT 'up' CHECK (state IN ('up', 'draining', 'unreachable')),
    os text,
    arch text,
    cpu_millis integer NOT NULL CHECK (cpu_millis >= 0),
    memory_bytes bigint NOT NULL CHECK (memory_bytes >= 0),
    serves text[],
    not_before timestamptz,
    foreign_use jsonb NOT NULL DEFAULT '{}',
    announced_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_heartbeat timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (machine_id, backend_type)
);

CREATE TABLE gateways (
    incarnation text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_heartbeat timestamptz NOT NULL DEFAULT clock_timestamp(),
    dead_at timestamptz
);
CREATE INDEX gateways_alive ON gateways (last_heartbeat) WHERE dead_at IS NULL;
"""

REQUESTS = """
CREATE TABLE scale_requests (
    job_id text PRIMARY KEY,
    run_id text NOT NULL,
    org text,
    digest text NOT NULL,
    state text NOT NULL CHECK (state IN
        ('waiting', 'assigned', 'running', 'succeeded', 'failed', 'cancelled', 'refused')),
    labels text[] NOT NULL,
    exclude text[] NOT NULL DEFAULT '{}',
    role text,
    request_cpu_millis integer,
    request_memory_bytes bigint,
    limit_cpu_millis integer,
    limit_memory_bytes bigint,
    image text,
    priority integer NOT NULL DEFAULT 0,
    may_wait boolean NOT NULL DEFAULT true,
    max_requeues integer NOT NULL CHECK (max_requeues >= 0),
    requeues integer NOT NULL DEFAULT 0,
    sealed_payload jsonb,
    sealed_registry jsonb,
    routed_scaler text,
    wait_code text NOT NULL DEFAULT 'undecided',
    wait_reason text NOT NULL DEFAULT '',
    last_provisioning_error text,
    cancel_reason text,
    result jsonb,
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    decided_at timestamptz,
    finished_at timestamptz,
    CONSTRAINT scale_requests_over_is_erased CHECK (
        state NOT IN ('succeeded', 'failed', 'cancelled', 'refused')
        OR (sealed_payload IS NULL AND sealed_registry IS NULL AND finished_at IS NOT NULL))
);
CREATE INDEX scale_requests_waiting ON scale_requests
    (routed_scaler, priority DESC, enqueued_at, job_id) WHERE state = 'waiting';
CREATE INDEX scale_requests_finished ON scale_requests (finished_at)
    WHERE finished_at IS NOT NULL;
"""

SPAWNS = """
CREATE SEQUENCE lease_tokens;

CREATE TABLE spawns (
    agent_id text PRIMARY KEY,
    state text NOT NULL CHECK (state IN
        ('reserved', 'spawning', 'booting', 'idle', 'busy', 'destroying', 'quarantined')),
    scaler text NOT NULL,
    backend_type text NOT NULL,
    revision_id bigint NOT NULL REFERENCES config_revisions (id),
    label_set_index integer NOT NULL,
    label_set text[] NOT NULL,
    agent_labels text[] NOT NULL,
    gate text[] NOT NULL,
    roles text[] NOT NULL DEFAULT '{}',
    targets text[] NOT NULL DEFAULT '{}',
    machine_id text,
    pool text,
    warm boolean NOT NULL,
    spawn_slots integer NOT NULL CHECK (spawn_slots > 0),
    spawn_timeout_seconds double precision NOT NULL CHECK (spawn_timeout_seconds > 0),
    cpu_millis integer NOT NULL CHECK (cpu_millis >= 0),
    memory_bytes bigint NOT NULL CHECK (memory_bytes >= 0),
    limit_cpu_millis integer,
    limit_memory_bytes bigint,
    job_id text REFERENCES scale_requests (job_id),
    run_id text,
    org text,
    owner text NOT NULL,
    adopter text,
    backend_ref jsonb,
    destroy_reason text,
    condemned_why text,
    lease_token bigint,
    lease_holder text,
    lease_expires_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    retry_at timestamptz,
    created_with bigint,
    reserved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    spawning_at timestamptz,
    booting_at timestamptz,
    idle_at timestamptz,
    busy_at timestamptz,
    destroying_at timestamptz,
    quarantined_at timestamptz,
    deadline_at timestamptz,
    due_at timestamptz,
    due_count integer NOT NULL DEFAULT 0,
    CONSTRAINT spawns_local_has_machine CHECK ((backend_type = 'event') = (machine_id IS NULL)),
    CONSTRAINT spawns_busy_has_job CHECK
        (state <> 'busy' OR (job_id IS NOT NULL AND busy_at IS NOT NULL)),
    CONSTRAINT spawns_lease_is_whole CHECK
        ((lease_holder IS NULL) = (lease_expires_at IS NULL)
         AND (lease_holder IS NULL OR lease_token IS NOT NULL)),
    CONSTRAINT spawns_reserved_is_untouched CHECK
        (state <> 'reserved' OR (spawning_at IS NULL AND backend_ref IS NULL)),
    CONSTRAINT spawns_ending_has_reason CHECK
        ((state IN ('destroying', 'quarantined'))
         = (destroy_reason IS NOT NULL AND destroying_at IS NOT NULL)),
    CONSTRAINT spawns_every_state_is_due CHECK
        (due_at IS NOT NULL OR (state = 'idle' AND job_id IS NULL))
);
CREATE UNIQUE INDEX spawns_one_per_job ON spawns (job_id)
    WHERE job_id IS NOT NULL AND state NOT IN ('destroying', 'quarantined');
CREATE INDEX spawns_due ON spawns (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX spawns_reserved ON spawns (machine_id, backend_type, reserved_at)
    WHERE state = 'reserved';
CREATE INDEX spawns_spawning ON spawns (machine_id, backend_type) WHERE state = 'spawning';
CREATE INDEX spawns_ending ON spawns (machine_id, backend_type, due_at)
    WHERE state IN ('destroying', 'quarantined');
CREATE INDEX spawns_leased ON spawns (lease_holder) WHERE lease_holder IS NOT NULL;

CREATE TABLE agents (
    agent_id text PRIMARY KEY,
    spawn_id text UNIQUE REFERENCES spawns (agent_id) ON DELETE CASCADE,
    labels text[] NOT NULL,
    gate text[] NOT NULL,
    facts jsonb NOT NULL DEFAULT '{}',
    gateway text REFERENCES gateways (incarnation),
    connection_number bigint NOT NULL CHECK (connection_number > 0),
    unseen_since timestamptz,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT agents_seen_has_gateway CHECK (unseen_since IS NOT NULL OR gateway IS NOT NULL)
);
CREATE INDEX agents_of_gateway ON agents (gateway) WHERE unseen_since IS NULL;

CREATE TABLE agent_tokens (
    token_hash bytea PRIMARY KEY CHECK (length(token_hash) = 32),
    agent_id text NOT NULL,
    labels text[] NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX agent_tokens_of_agent ON agent_tokens (agent_id);
CREATE INDEX agent_tokens_expired ON agent_tokens (expires_at);

CREATE TABLE outcomes (
    agent_id text PRIMARY KEY,
    scaler text NOT NULL,
    backend_type text NOT NULL,
    machine_id text,
    job_id text,
    run_id text,
    first_adopter text,
    adopted_at timestamptz,
    destroy_reason text,
    condemned_why text,
    exit_cause jsonb,
    log_tail text[] NOT NULL DEFAULT '{}',
    timings jsonb NOT NULL DEFAULT '{}',
    failed boolean NOT NULL DEFAULT false,
    targets text[] NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    gone_at timestamptz
);
CREATE INDEX outcomes_updated ON outcomes (updated_at);
CREATE INDEX outcomes_of_job ON outcomes (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX outcomes_failed ON outcomes (updated_at) WHERE failed;

CREATE TABLE events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    type text NOT NULL,
    agent_id text,
    job_id text,
    run_id text,
    detail text NOT NULL DEFAULT ''
);
CREATE INDEX events_of_agent ON events (agent_id, id);
CREATE INDEX events_of_job ON events (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX events_at ON events (at);
"""

TABLES = (
    "events", "outcomes", "agent_tokens", "agents", "spawns", "scale_requests", "gateways",
    "machines", "audit", "observation", "duties", "settings", "scaler_states", "config_revisions",
)  # fmt: skip


def upgrade() -> None:
    for part in (REVISIONS, PLACES, REQUESTS, SPAWNS):
        op.execute(part)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
    op.execute("DROP SEQUENCE lease_tokens")
