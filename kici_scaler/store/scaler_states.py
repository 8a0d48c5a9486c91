"""What is true of a scaler beyond its configuration: standing, failures, backoff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from kici_scaler.store.bulk import moment, sql


class ScalerStanding(StrEnum):
    """Whether a scaler takes new work."""

    ACTIVE = "active"
    PAUSED = "paused"
    RETIRING = "retiring"
    DEGRADED = "degraded"


@dataclass(frozen=True, slots=True)
class ScalerStateRow:
    """Standing and failure streak of one scaler."""

    scaler: str
    standing: ScalerStanding
    reason: str
    failure_streak: int
    backoff_until: datetime | None
    backoff_seconds: float
    """Seconds of backoff left by the database's clock; 0 when there is none."""
    in_flight: int = 0
    """Spawns on their way of a scaler that failed last; not counted for others."""
    since: datetime | None = None
    """When it came to stand so."""
    revision_id: int | None = None
    """Of a retiring scaler, the revision it was last in."""


SELECT = """
    SELECT scaler, standing, since, revision_id, reason, failure_streak, backoff_until,
           coalesce(greatest(0, extract(epoch FROM backoff_until - clock_timestamp())), 0)
               AS backoff_seconds,
           CASE WHEN failure_streak = 0 THEN 0 ELSE (
               SELECT count(*) FROM spawns s WHERE s.scaler = scaler_states.scaler
                 AND s.state IN ('reserved', 'spawning', 'booting')) END AS in_flight
    FROM scaler_states
"""
"""Every row, as `parsed` takes them."""


def all_states(connection: Connection) -> dict[str, ScalerStateRow]:
    """Rows by scaler name; a scaler that never failed or changed has none."""
    return {row.scaler: parsed(row._asdict()) for row in connection.execute(sql(SELECT))}


def parsed(values: Mapping[str, Any]) -> ScalerStateRow:
    """The state of a scaler from a row or from JSON."""
    return ScalerStateRow(
        **{
            **values,
            "standing": ScalerStanding(values["standing"]),
            "backoff_until": moment(values["backoff_until"]),
            "backoff_seconds": float(values["backoff_seconds"]),
            "since": moment(values["since"]),
        }
    )


def count_failures(
    connection: Connection, scalers: Sequence[str], *, base_seconds: float, max_seconds: float
) -> None:
    """Add one failure per mention and back off: base doubled per consecutive failure, bounded."""
    connection.execute(
        sql(
            """
            INSERT INTO scaler_states AS s (scaler, failure_streak, backoff_until)
            SELECT scaler, count(*), clock_timestamp() + make_interval(
                       secs => least(:base * 2 ^ least(count(*) - 1, 30), :most))
            FROM unnest(CAST(:scalers AS text[])) AS scaler GROUP BY scaler ORDER BY scaler
            ON CONFLICT (scaler) DO UPDATE SET
                failure_streak = s.failure_streak + excluded.failure_streak,
                backoff_until = clock_timestamp() + make_interval(secs => least(
                    :base * 2 ^ least(s.failure_streak + excluded.failure_streak - 1, 30), :most)),
                changed_at = clock_timestamp()
            """,
            "scalers",
        ),
        {"scalers": list(scalers), "base": base_seconds, "most": max_seconds},
    )


def clear_failures(connection: Connection, scaler: str) -> None:
    """A registration proves the scaler works: forget its streak (no write when there is none)."""
    connection.execute(
        sql("""
            UPDATE scaler_states
            SET failure_streak = 0, backoff_until = NULL, changed_at = clock_timestamp()
            WHERE scaler = :scaler AND (failure_streak > 0 OR backoff_until IS NOT NULL)
        """),
        {"scaler": scaler},
    )


def stand(connection: Connection, scaler: str, standing: ScalerStanding, *, reason: str) -> None:
    """Set whether a scaler takes new work; taking work again starts without failures."""
    connection.execute(
        sql("""
            INSERT INTO scaler_states AS s (scaler, standing, reason)
            VALUES (:scaler, :standing, :reason)
            ON CONFLICT (scaler) DO UPDATE SET
                standing = excluded.standing, reason = excluded.reason,
                failure_streak = CASE WHEN excluded.standing = 'active' THEN 0
                                      ELSE s.failure_streak END,
                backoff_until = CASE WHEN excluded.standing = 'active' THEN NULL
                                     ELSE s.backoff_until END,
                since = CASE WHEN s.standing = excluded.standing THEN s.since
                             ELSE clock_timestamp() END,
                changed_at = clock_timestamp()
        """),
        {"scaler": scaler, "standing": standing.value, "reason": reason},
    )
