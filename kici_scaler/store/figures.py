"""Single numbers for metrics, counted from rows; each read costs what is waiting or live."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.store import due
from kici_scaler.store.bulk import sql


@dataclass(frozen=True, slots=True)
class Lookout:
    """Whether somebody watches, and what has been waiting for it."""

    oldest_due_seconds: float
    watching: bool
    """Agents could be observed at the last tick, and that tick is recent."""
    unseen_provisions: int


def waiting_by_code(connection: Connection) -> dict[str, int]:
    """Requests without an agent, by the code of why."""
    rows = connection.execute(
        sql("""
            SELECT wait_code, count(*) AS held FROM scale_requests
            WHERE state = 'waiting' AND finished_at IS NULL GROUP BY wait_code
        """)
    )
    return {row.wait_code: row.held for row in rows}


def lookout(connection: Connection, *, longest_gap: float, flap_grace: float) -> Lookout:
    """How the watch over agents stands.

    Args:
        longest_gap: seconds without a watched tick that still count as watched.
        flap_grace: seconds of absence that are forgiven.
    """
    row = connection.execute(
        sql("""
            SELECT EXISTS (
                       SELECT 1 FROM observation WHERE watched_at
                         > clock_timestamp() - make_interval(secs => :longest)
                         AND grace_until <= clock_timestamp()) AS watching,
                   (SELECT count(*) FROM agents a JOIN spawns s ON s.agent_id = a.spawn_id
                    WHERE s.backend_type = 'event' AND a.unseen_since
                        <= clock_timestamp() - make_interval(secs => :grace)) AS unseen
        """),
        {"longest": longest_gap, "grace": flap_grace},
    ).one()
    return Lookout(due.oldest_overdue_seconds(connection), row.watching, row.unseen)


def deliveries_pending(connection: Connection) -> dict[str, int]:
    """Events that no target has answered yet, by kind."""
    rows = connection.execute(
        sql("""
            SELECT kind, count(*) AS held FROM event_deliveries
            WHERE state = 'pending' GROUP BY kind
        """)
    )
    return {row.kind: row.held for row in rows}
