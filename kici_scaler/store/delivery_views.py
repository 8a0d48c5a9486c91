"""Deliveries as operators, routers and metrics see them, and what they may do to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.domain.delivery import DeliveryKind, DeliveryState
from kici_scaler.store.bulk import MOST_AT_ONCE, sql
from kici_scaler.store.deliveries import TakenDelivery, taken_of


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery; `id` is the event's, which its target sees."""

    id: str
    agent_id: str
    scaler: str
    kind: DeliveryKind
    target: str
    round: int
    reason: str | None
    state: DeliveryState
    may_have_acted: bool
    attempts: int
    in_flight: bool
    dead_letter: bool
    last_status: int | None
    last_error: str | None
    created_at: datetime
    attempted_at: datetime | None
    next_attempt_at: datetime | None
    closed_at: datetime | None


_COLUMNS = """
    request_id AS id, agent_id, scaler, kind, target, round, reason, state, may_have_acted,
    attempts, attempt_open AS in_flight, dead_letter, last_status, last_error, created_at,
    attempted_at, CASE WHEN state = 'pending' THEN retry_at END AS next_attempt_at, closed_at
"""


def listed(
    connection: Connection,
    *,
    agent_id: str | None = None,
    scaler: str | None = None,
    states: Sequence[DeliveryState] | None = None,
    only_dead: bool = False,
    limit: int = 100,
) -> list[DeliveryRow]:
    """Deliveries, newest first."""
    rows = connection.execute(
        sql(
            f"""
            SELECT {_COLUMNS} FROM event_deliveries
            WHERE (CAST(:agent AS text) IS NULL OR agent_id = :agent)
              AND (CAST(:scaler AS text) IS NULL OR scaler = :scaler)
              AND (:any_state OR state = ANY(:states)) AND (NOT :dead OR dead_letter)
            ORDER BY event_deliveries.id DESC LIMIT :n
            """,
            "states",
        ),
        {
            "agent": agent_id,
            "scaler": scaler,
            "any_state": states is None,
            "states": [state.value for state in states or ()],
            "dead": only_dead,
            "n": limit,
        },
    )
    return [_delivery(dict(row._mapping)) for row in rows]


def find(connection: Connection, request_id: str) -> DeliveryRow | None:
    """One delivery by the id of its event."""
    rows = connection.execute(
        sql(f"SELECT {_COLUMNS} FROM event_deliveries WHERE request_id = :id"), {"id": request_id}
    )
    return next((_delivery(dict(row._mapping)) for row in rows), None)


def _delivery(values: dict[str, object]) -> DeliveryRow:
    values["kind"] = DeliveryKind(str(values["kind"]))
    values["state"] = DeliveryState(str(values["state"]))
    return DeliveryRow(**values)  # type: ignore[arg-type]  # columns match the fields by name


def try_at_once(connection: Connection, request_id: str) -> bool:
    """Let a pending delivery be tried now; False when it is over or on its way."""
    touched = connection.execute(
        sql("""
            UPDATE event_deliveries SET retry_at = clock_timestamp(), due_at = clock_timestamp(),
                due_count = 0
            WHERE request_id = :id AND state = 'pending' AND NOT attempt_open
        """),
        {"id": request_id},
    )
    return touched.rowcount == 1


_FETCHED = sql("""
    SELECT d.id, coalesce(d.lease_token, 0) AS token, d.request_id, d.agent_id, d.scaler, d.kind,
        d.target, d.reason, d.attempts, d.created_at,
        clock_timestamp() AS attempted_at, d.sealed_code,
        coalesce(c.expires_at, clock_timestamp() + make_interval(secs => c.ttl_seconds))
            AS code_until,
        s.agent_labels AS labels, s.gate, s.cpu_millis, s.memory_bytes, s.job_id,
        c.orchestrator_url
    FROM event_deliveries d
    LEFT JOIN spawns s ON s.agent_id = d.agent_id
    LEFT JOIN claims c ON c.agent_id = d.agent_id
    WHERE d.request_id = :id AND d.state = 'pending'
      AND (d.kind = 'scale-down'
           OR (s.state IN ('spawning', 'booting') AND s.deadline_at > clock_timestamp()
               AND c.consumed_at IS NULL
               AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())))
    FOR UPDATE OF d
""")


def fetch(connection: Connection, request_id: str) -> TakenDelivery | None:
    """What a router may have to act on it; None when it is over. From now on it may act."""
    row = connection.execute(_FETCHED, {"id": request_id}).one_or_none()
    if row is None:
        return None
    connection.execute(
        sql("UPDATE event_deliveries SET may_have_acted = true WHERE id = :id"), {"id": row.id}
    )
    return taken_of(dict(row._mapping))


def acknowledge(connection: Connection, request_id: str) -> bool:
    """The router has it; False when the delivery was over already."""
    closed = connection.execute(
        sql("""
            UPDATE event_deliveries SET state = 'done', may_have_acted = true,
                sealed_code = NULL, last_error = NULL, closed_at = clock_timestamp(),
                dead_letter = false
            WHERE request_id = :id AND state = 'pending'
        """),
        {"id": request_id},
    )
    return closed.rowcount == 1


def counts(connection: Connection) -> list[tuple[str, DeliveryKind, str, int]]:
    """Deliveries that reached their targets so far: (scaler, kind, reason, how many)."""
    rows = connection.execute(sql("SELECT scaler, kind, reason, delivered FROM delivery_counts"))
    return [(r.scaler, DeliveryKind(r.kind), r.reason, r.delivered) for r in rows]


def dead_letters(connection: Connection) -> int:
    """How many remembered deliveries could not be made."""
    row = connection.execute(sql("SELECT count(*) FROM event_deliveries WHERE dead_letter"))
    return int(row.scalar_one())


_PAST = """
    SELECT id FROM event_deliveries d
    WHERE {when} < (SELECT clock_timestamp() - make_interval(secs => :older))
      AND NOT EXISTS (SELECT 1 FROM spawns s WHERE s.agent_id = d.agent_id) {more}
    ORDER BY {when} LIMIT :most
"""
_OVER = _PAST.format(when="closed_at", more="")
_OWED_OF_FORGOTTEN = _PAST.format(
    when="created_at",
    more="""AND state = 'pending'
      AND NOT EXISTS (SELECT 1 FROM outcomes o WHERE o.agent_id = d.agent_id)""",
)


def purge(connection: Connection, *, older_seconds: float) -> int:
    """Forget deliveries past their retention of provisions that are gone.

    One that is still owed goes with the outcome of its agent, after which nobody knows of it.
    """
    result = connection.execute(
        sql(f"""
            DELETE FROM event_deliveries WHERE id = ANY(ARRAY(
                ({_OVER}) UNION ({_OWED_OF_FORGOTTEN}) LIMIT :most))
        """),
        {"older": older_seconds, "most": MOST_AT_ONCE},
    )
    return result.rowcount
