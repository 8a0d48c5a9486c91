"""What provisions need: one-time claim codes, deliveries of events to their targets."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

CLAIMS = """
CREATE TABLE claims (
    code_hash bytea PRIMARY KEY CHECK (length(code_hash) = 32),
    agent_id text NOT NULL UNIQUE,
    scaler text NOT NULL,
    labels text[] NOT NULL,
    orchestrator_url text NOT NULL,
    ttl_seconds integer NOT NULL CHECK (ttl_seconds > 0),
    token_ttl_seconds integer NOT NULL CHECK (token_ttl_seconds > 0),
    expires_at timestamptz,
    consumed_at timestamptz,
    reused_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT claims_reused_was_consumed CHECK (reused_at IS NULL OR consumed_at IS NOT NULL)
);
CREATE INDEX claims_over ON claims (expires_at);
CREATE INDEX claims_reused ON claims (reused_at) WHERE reused_at IS NOT NULL;
"""

DELIVERIES = """
CREATE TABLE event_deliveries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id text NOT NULL UNIQUE DEFAULT gen_random_uuid(),
    agent_id text NOT NULL,
    scaler text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('scale-up', 'scale-down')),
    target text NOT NULL,
    round integer NOT NULL DEFAULT 1 CHECK (round > 0),
    reason text,
    state text NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'done', 'not-done', 'unknown')),
    sealed_code jsonb,
    may_have_acted boolean NOT NULL DEFAULT false,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    attempt_open boolean NOT NULL DEFAULT false,
    attempted_at timestamptz,
    code_until timestamptz,
    lease_token bigint,
    lease_holder text,
    lease_expires_at timestamptz,
    retry_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_count integer NOT NULL DEFAULT 0,
    last_status integer,
    last_error text,
    dead_letter boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamptz,
    CONSTRAINT event_deliveries_one_a_round UNIQUE (agent_id, kind, target, round),
    CONSTRAINT event_deliveries_down_has_reason
        CHECK ((kind = 'scale-down') = (reason IS NOT NULL)),
    CONSTRAINT event_deliveries_code_is_erased CHECK (state = 'pending' OR sealed_code IS NULL),
    CONSTRAINT event_deliveries_only_ups_have_codes
        CHECK (kind = 'scale-up' OR (sealed_code IS NULL AND code_until IS NULL)),
    CONSTRAINT event_deliveries_closed_when_over CHECK ((state = 'pending') = (closed_at IS NULL)),
    CONSTRAINT event_deliveries_lease_is_whole CHECK
        (attempt_open = (lease_holder IS NOT NULL)
         AND attempt_open = (lease_expires_at IS NOT NULL)
         AND (NOT attempt_open OR lease_token IS NOT NULL)),
    CONSTRAINT event_deliveries_not_done_is_certain
        CHECK (state <> 'not-done' OR NOT may_have_acted)
);
CREATE INDEX event_deliveries_due ON event_deliveries (due_at)
    WHERE state = 'pending' OR attempt_open;
CREATE INDEX event_deliveries_pending ON event_deliveries (kind, target, retry_at)
    WHERE state = 'pending';
CREATE INDEX event_deliveries_open ON event_deliveries (lease_expires_at) WHERE attempt_open;
CREATE INDEX event_deliveries_dead ON event_deliveries (id) WHERE dead_letter;
CREATE INDEX event_deliveries_closed ON event_deliveries (closed_at) WHERE closed_at IS NOT NULL;

CREATE TABLE delivery_counts (
    scaler text NOT NULL,
    kind text NOT NULL,
    reason text NOT NULL DEFAULT '',
    delivered bigint NOT NULL CHECK (delivered > 0),
    PRIMARY KEY (scaler, kind, reason)
);
"""

SPAWNS = """
ALTER TABLE spawns ADD COLUMN farewell_at timestamptz;
CREATE INDEX spawns_provisions_ending ON spawns (due_at)
    WHERE backend_type = 'event' AND state IN ('destroying', 'quarantined');
"""


def upgrade() -> None:
    op.execute(CLAIMS)
    op.execute(DELIVERIES)
    op.execute(SPAWNS)


def downgrade() -> None:
    op.execute("DROP INDEX spawns_provisions_ending")
    op.execute("ALTER TABLE spawns DROP COLUMN farewell_at")
    for table in ("delivery_counts", "event_deliveries", "claims"):
        op.execute(f"DROP TABLE {table}")
