"""Failed provisions of the last minutes, for the whole cluster, from their outcomes."""

from __future__ import annotations

from sqlalchemy import Connection

from kici_scaler.domain.diagnosis import FailureCount
from kici_scaler.store.bulk import sql


def recent(connection: Connection, *, within_seconds: float) -> dict[str, FailureCount]:
    """Counts by scaler; of equal times the later row's error is the last one."""
    rows = connection.execute(
        sql("""
            SELECT scaler, count(*) FILTER (WHERE job_id IS NOT NULL) AS bound,
                   count(*) FILTER (WHERE job_id IS NULL) AS unbound,
                   (array_agg(coalesce(condemned_why, '') ORDER BY updated_at DESC))[1] AS error,
                   extract(epoch FROM max(updated_at)) * 1000 AS at_ms
            FROM outcomes
            WHERE failed
              AND updated_at >= (SELECT clock_timestamp() - make_interval(secs => :within))
            GROUP BY scaler
        """),
        {"within": within_seconds},
    )
    return {
        row.scaler: FailureCount(row.bound, row.unbound, row.error, int(row.at_ms)) for row in rows
    }
