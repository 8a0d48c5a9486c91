"""Taking spawns to be started: a batch under leases, as far as the slots of their scalers go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from kici_scaler.domain.windows import Windows
from kici_scaler.store.bulk import sql
from kici_scaler.store.settings import OF_CLUSTER


@dataclass(frozen=True, slots=True)
class TakenStart:
    """A spawn this process may start until its lease ends."""

    agent_id: str
    token: int
    scaler: str
    backend_type: str
    revision_id: int
    label_set_index: int
    label_set: tuple[str, ...]
    agent_labels: tuple[str, ...]
    machine_id: str | None
    pool: str | None
    cpu_millis: int
    memory_bytes: int
    limit_cpu_millis: int | None
    limit_memory_bytes: int | None
    job_id: str | None
    run_id: str | None
    image: str | None
    sealed_registry: Mapping[str, object] | None = field(repr=False)
    seconds_left: float
    attempts: int
    lapsed: bool = False
    """Its former holder let its lease run out."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one take brought, and how things stood at that moment."""

    rows: Sequence[TakenStart]
    left_some: bool
    """Whether reserved ones wait on for a slot."""
    windows: Windows


_TAKE = """
    WITH RECURSIVE in_flight AS (
        SELECT scaler, count(*) AS n FROM spawns
        WHERE {here} AND backend_type = :kind AND state = 'spawning' GROUP BY scaler
    ), waiting AS (
        (SELECT scaler FROM spawns WHERE {here} AND backend_type = :kind AND state = 'reserved'
         {order} LIMIT 1)
        UNION ALL
        SELECT (SELECT scaler FROM spawns
                WHERE {here} AND backend_type = :kind AND state = 'reserved'
                  AND scaler > waiting.scaler {order} LIMIT 1)
        FROM waiting WHERE waiting.scaler IS NOT NULL
    ), ready AS (
        SELECT one.*, row_number() OVER (PARTITION BY one.scaler ORDER BY reserved_at, agent_id)
            AS place
        FROM waiting CROSS JOIN LATERAL (
            SELECT agent_id, scaler, spawn_slots, reserved_at FROM spawns
            WHERE {here} AND backend_type = :kind AND state = 'reserved'
              AND scaler = waiting.scaler
            {order} LIMIT :most + 1) AS one
    ), chosen AS (
        (SELECT agent_id, 1 AS turn, reserved_at, lease_holder IS NOT NULL AS lapsed FROM spawns
         WHERE {here} AND backend_type = :kind AND state = 'spawning'
           AND coalesce(lease_expires_at, retry_at, '-infinity') < clock_timestamp()
           AND deadline_at > clock_timestamp())
        UNION ALL
        (SELECT ready.agent_id, 2, reserved_at, false FROM ready LEFT JOIN in_flight USING (scaler)
         WHERE place <= spawn_slots - coalesce(in_flight.n, 0))
        ORDER BY turn, reserved_at, agent_id LIMIT :most
    ), taken AS (
    UPDATE spawns s SET
        state = 'spawning',
        spawning_at = coalesce(s.spawning_at, clock_timestamp()),
        deadline_at = coalesce(
            s.deadline_at, clock_timestamp() + make_interval(secs => s.spawn_timeout_seconds)),
        lease_token = nextval('lease_tokens'), lease_holder = :holder,
        lease_expires_at = clock_timestamp() + make_interval(secs => :lease),
        due_at = clock_timestamp() + make_interval(secs => :lease), due_count = 0,
        attempts = s.attempts + 1
    FROM chosen
    WHERE s.agent_id = chosen.agent_id AND (s.state = 'reserved' OR (s.state = 'spawning'
        AND coalesce(s.lease_expires_at, s.retry_at, '-infinity') < clock_timestamp()))
    RETURNING s.agent_id, s.lease_token AS token, s.scaler, s.backend_type, s.revision_id,
        s.label_set_index, s.label_set, s.agent_labels, s.machine_id, s.pool, s.cpu_millis,
        s.memory_bytes, s.limit_cpu_millis, s.limit_memory_bytes, s.job_id, s.run_id,
        (SELECT q.image FROM scale_requests q WHERE q.job_id = s.job_id) AS image,
        (SELECT q.sealed_registry FROM scale_requests q WHERE q.job_id = s.job_id)
            AS sealed_registry,
        extract(epoch FROM s.deadline_at - clock_timestamp()) AS seconds_left, s.attempts,
        chosen.lapsed
    )
    SELECT (SELECT count(*) FROM ready) > (SELECT count(*) FROM chosen WHERE turn = 2) AS left_some,
        taken.*
    FROM (SELECT 1) AS once LEFT JOIN taken ON true
"""


_IN_ORDER_OF_INDEX = "ORDER BY machine_id, backend_type, scaler, reserved_at, agent_id"
"""All of its columns are named, since `IS NULL` is no equality to the planner."""
_WAIT_FOR_OTHERS = (
    f"SELECT {OF_CLUSTER} AS of_cluster, pg_advisory_xact_lock(hashtextextended(:place, 0))"
)


def take(
    connection: Connection,
    *,
    kind: str,
    machine_id: str | None,
    holder: str,
    most: int,
    lease_seconds: float | None = None,
) -> Taken:
    """Take the spawns that free slots allow on this machine, first come first served.

    The slots of a scaler are counted under a lock of their own, so concurrent takes never
    exceed them. A spawn whose former holder let its lease run out is taken again, before
    new ones. One that somebody moves on meanwhile is left alone. Of each scaler one more than
    `most` is looked at: where its spawns were reserved under different numbers of slots, those
    behind that many come with a later take.

    Args:
        lease_seconds: None for as long as the window says.
    """
    place = {"place": f"kici:start|{kind}|{machine_id or ''}"}
    windows = Windows.of(connection.execute(sql(_WAIT_FOR_OTHERS), place).one().of_cluster or {})
    here = "machine_id IS NULL" if machine_id is None else "machine_id = :machine"
    rows = connection.execute(
        sql(_TAKE.format(here=here, order=_IN_ORDER_OF_INDEX)),
        {
            "kind": kind,
            "machine": machine_id,
            "holder": holder,
            "most": most,
            "lease": windows.lease_seconds if lease_seconds is None else lease_seconds,
        },
    ).all()
    taken = [_taken(row._asdict()) for row in rows if row.agent_id is not None]
    return Taken(taken, rows[0].left_some, windows)


def _taken(values: dict[str, Any]) -> TakenStart:
    del values["left_some"]
    values["label_set"] = tuple(values["label_set"])
    values["agent_labels"] = tuple(values["agent_labels"])
    values["seconds_left"] = float(values["seconds_left"])
    return TakenStart(**values)


def any_reserved(connection: Connection, *, kind: str, machine_id: str | None) -> bool:
    """Whether spawns still wait for a slot on this machine."""
    here = "machine_id IS NULL" if machine_id is None else "machine_id = :machine"
    any_there = f"SELECT 1 FROM spawns WHERE {here} AND backend_type = :kind AND state = 'reserved'"
    row = connection.execute(
        sql(f"SELECT EXISTS ({any_there})"), {"kind": kind, "machine": machine_id}
    )
    return bool(row.scalar_one())
