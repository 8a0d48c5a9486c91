"""What a try of a delivery came to: noted under its token, then tried again or closed.

Lock order: the spawn, then its deliveries, then its claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.domain.delivery import Acted, Attempt, DeliveryKind, DeliveryState
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store.bulk import sql


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A try whose process was not heard of again."""

    id: int
    token: int
    agent_id: str


def lapsed(connection: Connection, kind: DeliveryKind, *, most: int) -> list[Lapsed]:
    """Tries whose lease ran out without a result."""
    rows = connection.execute(
        sql("""
            SELECT id, lease_token AS token, agent_id FROM event_deliveries
            WHERE attempt_open AND lease_expires_at < clock_timestamp() AND kind = :kind
            ORDER BY id LIMIT :most
        """),
        {"kind": kind.value, "most": most},
    )
    return [Lapsed(**row._mapping) for row in rows]


@dataclass(frozen=True, slots=True)
class Tried:
    """A delivery right after a try was noted on it."""

    id: int
    agent_id: str
    scaler: str
    kind: DeliveryKind
    target: str
    reason: str | None
    state: DeliveryState
    """Closed already when it was called off during the try."""
    attempts: int
    may_have_acted: bool
    attempted_at: datetime
    code_until: datetime | None


def end_attempt(
    connection: Connection, *, delivery_id: int, token: int, attempt: Attempt
) -> Tried | None:
    """Note what a try came to, and give its lease back; None when the lease was lost."""
    row = connection.execute(
        sql("""
            UPDATE event_deliveries SET
                attempt_open = false, lease_holder = NULL, lease_expires_at = NULL,
                may_have_acted = may_have_acted OR :acted,
                last_status = :status, last_error = nullif(:why, '')
            WHERE id = :id AND lease_token = :token AND attempt_open
            RETURNING id, agent_id, scaler, kind, target, reason, state, attempts,
                      may_have_acted, attempted_at, code_until
        """),
        {
            "id": delivery_id,
            "token": token,
            "acted": attempt.acted is not Acted.NO,
            "status": attempt.status,
            "why": attempt.why,
        },
    ).one_or_none()
    if row is None:
        return None
    kind, state = DeliveryKind(row.kind), DeliveryState(row.state)
    return Tried(**{**row._mapping, "kind": kind, "state": state})


def try_again(connection: Connection, delivery_id: int, *, pause_seconds: float) -> None:
    """Leave it pending for another try after a pause."""
    connection.execute(
        sql("""
            UPDATE event_deliveries SET
                retry_at = clock_timestamp() + make_interval(secs => :pause),
                due_at = clock_timestamp() + make_interval(secs => :pause), due_count = 0
            WHERE id = :id AND state = 'pending'
        """),
        {"id": delivery_id, "pause": pause_seconds},
    )


def close(
    connection: Connection, delivery_id: int, state: DeliveryState, *, dead_letter: bool = False
) -> None:
    """No more tries; a code it held is erased."""
    connection.execute(
        sql("""
            UPDATE event_deliveries SET state = :state, sealed_code = NULL,
                closed_at = coalesce(closed_at, clock_timestamp()), dead_letter = :dead
            WHERE id = :id
        """),
        {"id": delivery_id, "state": state.value, "dead": dead_letter},
    )


def count(connection: Connection, scaler: str, kind: DeliveryKind, reason: str | None) -> None:
    """One more event of that kind has reached its target."""
    connection.execute(
        sql("""
            INSERT INTO delivery_counts AS c (scaler, kind, reason, delivered)
            VALUES (:scaler, :kind, :reason, 1)
            ON CONFLICT (scaler, kind, reason) DO UPDATE SET delivered = c.delivered + 1
        """),
        {"scaler": scaler, "kind": kind.value, "reason": reason or ""},
    )


def states_of(connection: Connection, agent_id: str, kind: DeliveryKind) -> list[DeliveryState]:
    """How the deliveries of one kind stand."""
    rows = connection.execute(
        sql("SELECT state FROM event_deliveries WHERE agent_id = :id AND kind = :kind"),
        {"id": agent_id, "kind": kind.value},
    )
    return [DeliveryState(state) for state in rows.scalars()]


def failures_of(connection: Connection, agent_id: str) -> list[tuple[str, str, int]]:
    """What each target's last try came to: (target, in words, number of tries)."""
    rows = connection.execute(
        sql("""
            SELECT target, coalesce(last_error, 'never tried') AS why, attempts
            FROM event_deliveries WHERE agent_id = :id AND kind = 'scale-up' ORDER BY id
        """),
        {"id": agent_id},
    )
    return [(row.target, row.why, row.attempts) for row in rows]


@dataclass(frozen=True, slots=True)
class Owner:
    """The spawn that a delivery is for, locked."""

    state: SpawnState
    seconds_left: float | None


def lock_owner(connection: Connection, agent_id: str, *, wait: bool = True) -> Owner | None:
    """Lock the spawn of a delivery before the delivery itself; None when it is gone.

    Without `wait`, one that somebody else has locked counts as gone.
    """
    row = connection.execute(
        sql(f"""
            SELECT state, extract(epoch FROM deadline_at - clock_timestamp()) AS seconds_left
            FROM spawns WHERE agent_id = :id FOR NO KEY UPDATE {"" if wait else "SKIP LOCKED"}
        """),
        {"id": agent_id},
    ).one_or_none()
    if row is None:
        return None
    left = None if row.seconds_left is None else float(row.seconds_left)
    return Owner(SpawnState(row.state), left)
