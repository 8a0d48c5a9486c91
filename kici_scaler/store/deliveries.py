"""Deliveries: one row an event and target, from the wish to tell it something to its answer.

Each try is taken under a lease and applied under its token, as every step outside the
database is. Lock order: the spawn, then its deliveries, then its claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.domain.delivery import DeliveryKind
from kici_scaler.store.bulk import as_rows, sql

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Provision:
    """What a scale-up says of the machine it asks for."""

    labels: tuple[str, ...]
    gate: tuple[str, ...]
    cpu_millis: int
    memory_bytes: int
    job_id: str | None
    orchestrator_url: str
    code_until: datetime
    """When the code lapses, should this be the first delivery that reaches anybody."""
    sealed_code: Json = field(repr=False)


@dataclass(frozen=True, slots=True)
class TakenDelivery:
    """A delivery that this process may try once, until its lease ends."""

    id: int
    token: int
    request_id: str
    agent_id: str
    scaler: str
    kind: DeliveryKind
    target: str
    reason: str | None
    attempts: int
    created_at: datetime
    attempted_at: datetime
    provision: Provision | None
    """Of a scale-up."""


def ask_for(
    connection: Connection, sealed: Mapping[str, Json], *, hint_after: float
) -> dict[str, int]:
    """One scale-up to each target recorded on these spawns; how many each spawn got.

    `sealed` holds the claim code of each agent, as an envelope.
    """
    rows = connection.execute(
        sql("""
            INSERT INTO event_deliveries (agent_id, scaler, kind, target, sealed_code, due_at)
            SELECT s.agent_id, s.scaler, 'scale-up', t.target, p.sealed,
                   clock_timestamp() + make_interval(secs => :hint_after)
            FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS p(agent_id text, sealed jsonb)
            JOIN spawns s USING (agent_id)
            CROSS JOIN LATERAL unnest(s.targets) WITH ORDINALITY AS t(target, place)
            ORDER BY s.agent_id, t.place
            RETURNING agent_id
        """),
        {
            "rows": as_rows(
                {"agent_id": key, "sealed": dict(each)} for key, each in sealed.items()
            ),
            "hint_after": hint_after,
        },
    )
    found = dict.fromkeys(sealed, 0)
    for agent_id in rows.scalars():
        found[agent_id] += 1
    return found


_TAKE = """
    WITH in_flight AS (
        SELECT target, count(*) AS n FROM event_deliveries
        WHERE attempt_open AND lease_holder = :holder AND kind = :kind
          AND lease_expires_at > clock_timestamp()
        GROUP BY target
    ), ready AS (
        SELECT d.id, d.target,
               row_number() OVER (PARTITION BY d.target ORDER BY d.retry_at, d.id) AS place
        FROM event_deliveries d
        WHERE d.kind = :kind AND {ready}
    ), chosen AS (
        SELECT d.id, d.agent_id FROM ready
        JOIN event_deliveries d ON d.id = ready.id
        LEFT JOIN in_flight ON in_flight.target = d.target
        WHERE d.state = 'pending' AND NOT d.attempt_open AND d.retry_at <= clock_timestamp()
          AND ready.place <= :per_target - coalesce(in_flight.n, 0)
        ORDER BY d.retry_at, d.id LIMIT :most FOR UPDATE OF d SKIP LOCKED
    )
    UPDATE event_deliveries d SET
        attempts = d.attempts + 1, attempt_open = true, attempted_at = clock_timestamp(),
        lease_token = nextval('lease_tokens'), lease_holder = :holder,
        lease_expires_at = clock_timestamp() + make_interval(secs => :lease),
        due_at = clock_timestamp() + make_interval(secs => :lease), due_count = 0,
        code_until = CASE WHEN d.kind = 'scale-up' THEN coalesce(
            c.expires_at, clock_timestamp() + make_interval(secs => c.ttl_seconds)) END
    FROM chosen
    LEFT JOIN spawns s ON s.agent_id = chosen.agent_id
    LEFT JOIN claims c ON c.agent_id = chosen.agent_id
    WHERE d.id = chosen.id
    RETURNING d.id, d.lease_token AS token, d.request_id, d.agent_id, d.scaler, d.kind, d.target,
        d.reason, d.attempts, d.created_at, d.attempted_at, d.sealed_code, d.code_until,
        s.agent_labels AS labels, s.gate, s.cpu_millis, s.memory_bytes, s.job_id,
        c.orchestrator_url
"""
_READY = {
    DeliveryKind.SCALE_UP: """
        d.state = 'pending' AND NOT d.attempt_open AND d.retry_at <= clock_timestamp()
        AND EXISTS (
            SELECT 1 FROM spawns s JOIN claims c ON c.agent_id = s.agent_id
            WHERE s.agent_id = d.agent_id AND s.state IN ('spawning', 'booting')
              AND s.deadline_at > clock_timestamp() AND c.consumed_at IS NULL
              AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp()))
    """,
    DeliveryKind.SCALE_DOWN: """
        d.state = 'pending' AND NOT d.attempt_open AND d.retry_at <= clock_timestamp()
        AND NOT EXISTS (
            SELECT 1 FROM event_deliveries e
            WHERE e.agent_id = d.agent_id AND e.target = d.target AND e.id < d.id
              AND (e.state = 'pending'
                   OR (e.attempt_open AND e.lease_expires_at > clock_timestamp())))
    """,
}
"""A target hears of one agent in order: no scale-down while an earlier event is on its way."""


def take(
    connection: Connection,
    kind: DeliveryKind,
    *,
    holder: str,
    most: int,
    per_target: int,
    lease_seconds: float,
) -> list[TakenDelivery]:
    """Take deliveries whose time has come, the longest waiting first.

    Of one target this holder has at most `per_target` on their way, so that one that hangs
    leaves room for the others.
    """
    rows = connection.execute(
        sql(_TAKE.format(ready=_READY[kind])),
        {
            "kind": kind.value,
            "holder": holder,
            "most": most,
            "per_target": per_target,
            "lease": lease_seconds,
        },
    )
    return [taken_of(dict(row._mapping)) for row in rows]


def taken_of(row: Mapping[str, object]) -> TakenDelivery:
    """A row of the columns that `take` returns."""
    values = dict(row)
    provision = {
        name: values.pop(name)
        for name in ("labels", "gate", "cpu_millis", "memory_bytes", "job_id",
                     "orchestrator_url", "code_until", "sealed_code")
    }  # fmt: skip
    kind = DeliveryKind(str(values["kind"]))
    asked = None
    if kind is DeliveryKind.SCALE_UP:
        for name in ("labels", "gate"):
            provision[name] = tuple(provision[name])  # type: ignore[arg-type]  # a text[] column
        asked = Provision(**provision)  # type: ignore[arg-type]  # columns match the fields
    return TakenDelivery(**{**values, "kind": kind, "provision": asked})  # type: ignore[arg-type]  # columns match the fields


def any_ready(connection: Connection, kind: DeliveryKind) -> bool:
    """Whether deliveries wait whose time has come."""
    row = connection.execute(
        sql(
            "SELECT EXISTS (SELECT 1 FROM event_deliveries d"
            f" WHERE d.kind = :kind AND {_READY[kind]})"
        ),
        {"kind": kind.value},
    )
    return bool(row.scalar_one())


def _first_due(most: int) -> str:
    """Those that somebody should look at, the longest overdue first; how many, as for spawns."""
    return f"""
        SELECT id FROM event_deliveries
        WHERE due_at <= (SELECT clock_timestamp()) AND (state = 'pending' OR attempt_open)
        ORDER BY due_at LIMIT {most:d}
    """


IS_ANY_DUE = f"({_first_due(1)}) IS NOT NULL"
"""Whether `due` would find something that nobody else works on, as an expression."""


def due(connection: Connection, *, most: int, first_pause: float) -> frozenset[DeliveryKind]:
    """Kinds of the deliveries somebody should look at; each is pushed back as it is picked."""
    rows = connection.execute(
        sql(f"""
            WITH picked AS ({_first_due(most)} FOR UPDATE SKIP LOCKED)
            UPDATE event_deliveries d SET due_count = least(d.due_count + 1, 30),
                due_at = clock_timestamp()
                    + make_interval(secs => least(:pause * 2 ^ least(d.due_count, 30), 60))
            FROM picked WHERE d.id = picked.id RETURNING d.kind
        """),
        {"pause": first_pause},
    ).scalars()
    return frozenset(DeliveryKind(kind) for kind in rows)
