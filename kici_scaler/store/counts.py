"""Counters as rows that are appended, never changed, so that whoever counts waits for nobody.

A duty folds them now and then. Reading adds up what is folded and what is not, in one snapshot,
so nothing is seen twice or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, TextClause, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, DOUBLE_PRECISION

from kici_scaler.metrics import Metric
from kici_scaler.metrics.declared import START_SECONDS
from kici_scaler.store.bulk import as_rows, sql

MOST_UNFOLDED = 500
"""Rows of counts that may pile up before they are folded."""
MOST_TIMINGS_FOLDED = 50_000
"""Timings folded at a time, so that one tick of the duty stays short."""


@dataclass(frozen=True, slots=True)
class Count:
    """So many more of something, under these values of the metric's labels."""

    metric: Metric
    labels: tuple[str, ...] = ()
    n: float = 1


def add(connection: Connection, counts: Iterable[Count]) -> None:
    """Count in this transaction; nothing when there is nothing."""
    rows = [{"name": each.metric.name, "labels": each.labels, "n": each.n} for each in counts]
    if rows:
        connection.execute(
            sql("""
                INSERT INTO metric_counts (name, labels, n)
                SELECT name, labels, sum(n) FROM jsonb_to_recordset(CAST(:rows AS jsonb))
                  AS c(name text, labels text[], n double precision)
                GROUP BY name, labels
            """),
            {"rows": as_rows(rows)},
        )


_STEPS = """
    SELECT ARRAY[scaler, CASE WHEN warm THEN 'warm' ELSE 'cold' END, step] AS labels,
           greatest(0, extract(epoch FROM until - since))::float8 AS seconds
    FROM {timings}, LATERAL (VALUES
        ('reserved', requested_at, reserved_at),
        ('spawned', reserved_at, coalesce(spawned_at, registered_at)),
        ('registered', coalesce(spawned_at, registered_at), registered_at),
        ('started', registered_at, started_at),
        ('all', requested_at, started_at)) AS each_step(step, since, until)
    WHERE (NOT warm OR step = 'all') AND since IS NOT NULL AND until IS NOT NULL
"""
_BUCKETED = f"""
    SELECT '{START_SECONDS.name}' AS name, labels, coalesce(
               (SELECT min(bound) FROM unnest(:bounds) AS bound WHERE seconds <= bound),
               'Infinity') AS le, count(*)::float8 AS n
    FROM step_seconds GROUP BY labels, 3
    UNION ALL
    SELECT '{START_SECONDS.name}', labels, NULL, sum(seconds) FROM step_seconds GROUP BY labels
"""


def _bounded(statement: str) -> TextClause:
    """A statement that is handed the bounds of the histogram's buckets."""
    bounds = bindparam("bounds", list(START_SECONDS.buckets), type_=ARRAY(DOUBLE_PRECISION))
    return text(statement).bindparams(bounds)


_FOLD_TIMINGS = _bounded(f"""
    WITH gone AS (
        DELETE FROM start_timings
        WHERE id IN (SELECT id FROM start_timings ORDER BY id LIMIT :most)
        RETURNING scaler, warm, requested_at, reserved_at, spawned_at, registered_at, started_at
    ), step_seconds AS MATERIALIZED ({_STEPS.format(timings="gone")})
    INSERT INTO metric_counts (name, labels, le, n) {_BUCKETED}
""")
_READ = _bounded(f"""
    WITH step_seconds AS MATERIALIZED ({_STEPS.format(timings="start_timings")})
    SELECT name, labels, le, sum(n) AS n FROM (
        SELECT name, labels, le, n FROM metric_counts UNION ALL ({_BUCKETED})
    ) AS everything
    GROUP BY name, labels, le ORDER BY name, labels, le
""")


def fold(connection: Connection) -> None:
    """Put many rows into one each, once there are many; one caller at a time."""
    connection.execute(_FOLD_TIMINGS, {"most": MOST_TIMINGS_FOLDED})
    unfolded = connection.execute(sql("SELECT count(*) FROM metric_counts")).scalar_one()
    if unfolded > MOST_UNFOLDED:
        connection.execute(
            sql("""
                WITH gone AS (DELETE FROM metric_counts RETURNING name, labels, le, n)
                INSERT INTO metric_counts (name, labels, le, n)
                SELECT name, labels, le, sum(n) FROM gone GROUP BY name, labels, le
            """)
        )


@dataclass(frozen=True, slots=True)
class CountRow:
    """What a counter stands at, or a part of a histogram.

    `le` is the upper bound of the one bucket that `n` counts; None in a counter, and in the sum
    of a histogram.
    """

    name: str
    labels: tuple[str, ...]
    le: float | None
    n: float


def read(connection: Connection) -> list[CountRow]:
    """Everything counted since the database was made."""
    rows = connection.execute(_READ)
    return [CountRow(row.name, tuple(row.labels), row.le, float(row.n)) for row in rows]
