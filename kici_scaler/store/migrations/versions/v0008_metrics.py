"""Counters for Prometheus and how long starts took: rows that are appended and then folded.

Also a small index of the requests that are not over, which are counted among many that are.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# In a histogram `le` is the upper bound of the one bucket that the rows count, and NULL in rows
# of the sum.
UP = """
CREATE TABLE metric_counts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    labels text[] NOT NULL DEFAULT '{}',
    le double precision,
    n double precision NOT NULL
);

CREATE TABLE start_timings (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scaler text NOT NULL,
    warm boolean NOT NULL,
    requested_at timestamptz NOT NULL,
    reserved_at timestamptz NOT NULL,
    spawned_at timestamptz,
    registered_at timestamptz,
    started_at timestamptz NOT NULL
);

CREATE INDEX scale_requests_open ON scale_requests (state, wait_code) WHERE finished_at IS NULL;
"""

DOWN = """
DROP INDEX scale_requests_open;
DROP TABLE start_timings;
DROP TABLE metric_counts;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
