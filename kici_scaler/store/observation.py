"""Whether the cluster has been watched without a gap, and what an unwatched time is worth.

Whoever could not observe must not judge. The moment of the last observation is kept;
when watching resumes after a gap, every deadline and absence clock moves by the length
of the gap, and nobody is condemned for absence until agents had time to return.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.store.bulk import sql

LONGEST_GAP_SECONDS = 10.0
"""Between two watched ticks that still count as watched without a gap."""


@dataclass(frozen=True, slots=True)
class Observation:
    """How things stand at this tick.

    `gap_seconds` is the unwatched time that ended with this tick, 0 when there was none.
    """

    watching: bool
    in_grace: bool
    gap_seconds: float = 0.0


_IS_BROKEN = "o.watched_at < clock_timestamp() - make_interval(secs => :longest)"

IS_UNBROKEN = f"coalesce((SELECT NOT ({_IS_BROKEN}) FROM observation o), false)"
"""Whether a watched tick at this moment would follow the last one without a gap, as an
expression; `:longest` is the gap in seconds. Then `GO_ON` is all that `note` would write."""

GO_ON = "UPDATE observation SET watched_at = clock_timestamp()"


def note(
    connection: Connection, *, watching: bool, longest_gap: float, grace_seconds: float
) -> Observation:
    """Record this tick; at the end of an unwatched time, start the grace.

    Args:
        watching: whether a gateway could have seen agents at this tick.
        longest_gap: seconds between two watched ticks that still count as watched.
    """
    if not watching:
        return Observation(watching=False, in_grace=True)
    row = connection.execute(
        sql(f"""
            WITH before AS (SELECT watched_at, grace_until FROM observation)
            INSERT INTO observation AS o (watched_at, grace_until)
            VALUES (clock_timestamp(), clock_timestamp())
            ON CONFLICT (single) DO UPDATE SET
                watched_at = clock_timestamp(),
                grace_until = CASE
                    WHEN {_IS_BROKEN}
                    THEN clock_timestamp() + make_interval(secs => :grace)
                    ELSE o.grace_until END
            RETURNING o.grace_until > clock_timestamp() AS in_grace,
                coalesce((SELECT extract(epoch FROM clock_timestamp() - watched_at)
                          FROM before), 0) AS gap
        """),
        {"longest": longest_gap, "grace": grace_seconds},
    ).one()
    gap = float(row.gap)
    return Observation(True, row.in_grace, gap if gap > longest_gap else 0.0)


def is_watching(connection: Connection) -> bool:
    """Whether the last watched tick is recent, so that deadlines run."""
    row = connection.execute(
        sql("SELECT EXISTS (SELECT 1 FROM observation"
            " WHERE watched_at > clock_timestamp() - make_interval(secs => :longest))"),
        {"longest": LONGEST_GAP_SECONDS},
    )  # fmt: skip
    return bool(row.scalar_one())


def unwatched_seconds(connection: Connection) -> float:
    """How long ago agents were last watched; since the first sweep or gateway when never.

    0 where nobody has begun to: an empty house has nothing to watch.
    """
    value = connection.execute(
        sql("""
            SELECT extract(epoch FROM clock_timestamp() - coalesce(
                (SELECT watched_at FROM observation),
                least((SELECT min(ticked_at) FROM duties), (SELECT min(started_at) FROM gateways))))
        """)
    ).scalar_one()
    return 0.0 if value is None else max(0.0, float(value))


def shift_clocks(connection: Connection, seconds: float) -> int:
    """Move every running deadline and absence clock by an unwatched time; returns how many.

    The one statement whose cost grows with all live rows; it runs once an outage.
    """
    shifted = connection.execute(
        sql("""
            UPDATE spawns SET
                deadline_at = deadline_at + make_interval(secs => :gap)
            WHERE deadline_at IS NOT NULL
              AND state IN ('spawning', 'booting', 'idle', 'busy', 'destroying')
        """),
        {"gap": seconds},
    )
    connection.execute(
        sql("""
            UPDATE agents SET unseen_since = least(
                clock_timestamp(), unseen_since + make_interval(secs => :gap))
            WHERE unseen_since IS NOT NULL
        """),
        {"gap": seconds},
    )
    return shifted.rowcount


@dataclass(frozen=True, slots=True)
class Attendance:
    """How many registered agents of a scaler there are, and how many nobody sees."""

    registered: int
    absent: int


def attendance(connection: Connection, scalers: list[str]) -> dict[str, Attendance]:
    """Attendance of these scalers' agents."""
    rows = connection.execute(
        sql(
            """
            SELECT s.scaler, count(*) AS registered,
                   count(*) FILTER (WHERE a.unseen_since IS NOT NULL) AS absent
            FROM spawns s JOIN agents a ON a.spawn_id = s.agent_id
            WHERE s.scaler = ANY(:scalers) AND s.state IN ('idle', 'busy')
            GROUP BY s.scaler
            """,
            "scalers",
        ),
        {"scalers": scalers},
    )
    return {row.scaler: Attendance(row.registered, row.absent) for row in rows}


def registered(connection: Connection) -> int:
    """How many agents there are that ever connected and are not over, of scalers or not."""
    return int(connection.execute(sql("SELECT count(*) FROM agents")).scalar_one())
