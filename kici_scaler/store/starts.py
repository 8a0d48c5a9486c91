"""Leases on spawns to be started: take a batch, keep it alive, record what was made.

A token from one sequence marks each take. Whoever lost its lease finds no row under its
token when it applies, and may only undo what that token made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.domain.windows import Windows
from kici_scaler.store import events
from kici_scaler.store.bulk import records, sql
from kici_scaler.store.events import NewEvent
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
         ORDER BY scaler, reserved_at, agent_id LIMIT 1)
        UNION ALL
        SELECT (SELECT scaler FROM spawns
                WHERE {here} AND backend_type = :kind AND state = 'reserved'
                  AND scaler > waiting.scaler ORDER BY scaler, reserved_at, agent_id LIMIT 1)
        FROM waiting WHERE waiting.scaler IS NOT NULL
    ), ready AS (
        SELECT one.*, row_number() OVER (PARTITION BY one.scaler ORDER BY reserved_at, agent_id)
            AS place
        FROM waiting CROSS JOIN LATERAL (
            SELECT agent_id, scaler, spawn_slots, reserved_at FROM spawns
            WHERE {here} AND backend_type = :kind AND state = 'reserved'
              AND scaler = waiting.scaler
            ORDER BY reserved_at, agent_id LIMIT :most + 1) AS one
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
    new ones. One that somebody moves on meanwhile is left alone.

    Args:
        lease_seconds: None for as long as the window says.
    """
    place = {"place": f"kici:start|{kind}|{machine_id or ''}"}
    windows = Windows.of(connection.execute(sql(_WAIT_FOR_OTHERS), place).one().of_cluster or {})
    here = "machine_id IS NULL" if machine_id is None else "machine_id = :machine"
    rows = connection.execute(
        sql(_TAKE.format(here=here)),
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


def extend(
    connection: Connection, *, holder: str, tokens: Collection[int], lease_seconds: float
) -> int:
    """Keep the leases alive under which this holder works; returns how many still ran.

    Others in its name run out: a take whose answer was lost, a step that broke off. So does one
    that keeps an agent from being torn down past the bound of that: it hangs, however alive the
    worker is, and the agent has to be taken by another, and alarmed.
    """
    result = connection.execute(
        sql("""
            UPDATE spawns
            SET lease_expires_at = clock_timestamp() + make_interval(secs => :lease),
                due_at = CASE WHEN state IN ('spawning', 'destroying', 'quarantined')
                    THEN greatest(due_at, clock_timestamp() + make_interval(secs => :lease))
                    ELSE due_at END
            WHERE lease_holder = :holder AND lease_expires_at > clock_timestamp()
              AND lease_token = ANY(CAST(:tokens AS bigint[]))
              AND (state <> 'destroying' OR deadline_at > clock_timestamp())
        """),
        {"holder": holder, "tokens": list(tokens), "lease": lease_seconds},
    )
    return result.rowcount


def still_wanted(connection: Connection, agent_id: str, token: int) -> bool:
    """Whether this token still leads, and nobody has decided to tear the agent down."""
    statement = sql(
        "SELECT EXISTS (SELECT 1 FROM spawns WHERE agent_id = :id AND lease_token = :token"
        " AND state IN ('spawning', 'idle', 'busy') AND lease_expires_at > clock_timestamp())"
    )
    row = connection.execute(statement, {"id": agent_id, "token": token})
    return bool(row.scalar_one())


@dataclass(frozen=True, slots=True)
class MadeStart:
    """What a token made."""

    agent_id: str
    token: int
    ref: Mapping[str, str]
    boot_floor: float
    """Seconds that it has at least until its agent registers."""
    look_after: float
    """Seconds until it is looked at for the first time."""


_CREATED = sql(f"""
    WITH given AS (
        SELECT * FROM jsonb_to_recordset(CAST(:made AS jsonb)) AS g(agent_id text, token bigint,
            ref jsonb, boot_floor double precision, look_after double precision)
    ), led AS MATERIALIZED (
        SELECT s.agent_id, g.ref, g.boot_floor, g.look_after
        FROM spawns s JOIN given g ON g.agent_id = s.agent_id
        WHERE s.lease_token = g.token AND s.lease_holder IS NOT NULL
        ORDER BY s.agent_id FOR NO KEY UPDATE OF s
    ), made AS (
        UPDATE spawns s SET
            backend_ref = led.ref, created_with = lease_token,
            lease_holder = NULL, lease_expires_at = NULL,
            booting_at = CASE WHEN state = 'spawning' THEN clock_timestamp() ELSE booting_at END,
            deadline_at = CASE WHEN state = 'spawning'
                THEN clock_timestamp()
                     + make_interval(secs => greatest(spawn_timeout_seconds, led.boot_floor))
                ELSE deadline_at END,
            due_at = CASE state
                WHEN 'spawning' THEN clock_timestamp() + make_interval(secs => led.look_after)
                WHEN 'destroying' THEN clock_timestamp()
                ELSE due_at END,
            due_count = CASE WHEN state = 'spawning' THEN 0 ELSE due_count END,
            state = CASE WHEN state = 'spawning' THEN 'booting' ELSE state END
        FROM led WHERE s.agent_id = led.agent_id
        RETURNING s.agent_id, s.lease_token, s.state
    ), {events.append_of("made")}
    SELECT lease_token, state FROM made
""")


def record_created(
    connection: Connection, made: Iterable[MadeStart], told: Iterable[NewEvent] = ()
) -> dict[int, SpawnState]:
    """Record what tokens made, and what they told; the states of those that had not lost their
    lease, by token (of others undo only what they made). An agent is named once.

    Whatever the state has become meanwhile, what exists is recorded; only `spawning`
    advances, since the agent may have registered already.
    """
    values = {"made": records(made), "events": events.as_parameter(told)}
    rows = connection.execute(_CREATED, values)
    return {row.lease_token: SpawnState(row.state) for row in rows}


def made_with(connection: Connection, *, agent_id: str, token: int) -> SpawnState | None:
    """The state of a spawn whose compute was recorded under this token; None for any other."""
    state = connection.execute(
        sql("SELECT state FROM spawns WHERE agent_id = :id AND created_with = :token"),
        {"id": agent_id, "token": token},
    ).scalar_one_or_none()
    return None if state is None else SpawnState(state)


def release(
    connection: Connection, *, agent_id: str, token: int, pause_seconds: float = 0.0
) -> SpawnState | None:
    """Give the lease back without a result; None when it was lost already.

    A spawn that nobody has ended meanwhile may be taken again after the pause.
    """
    state = connection.execute(
        sql("""
            UPDATE spawns SET lease_holder = NULL, lease_expires_at = NULL,
                due_at = CASE state
                    WHEN 'destroying' THEN clock_timestamp()
                    WHEN 'spawning' THEN clock_timestamp() + make_interval(secs => :pause)
                    ELSE due_at END,
                retry_at = clock_timestamp() + make_interval(secs => :pause)
            WHERE agent_id = :id AND lease_token = :token AND lease_holder IS NOT NULL
            RETURNING state
        """),
        {"id": agent_id, "token": token, "pause": pause_seconds},
    ).scalar_one_or_none()
    return None if state is None else SpawnState(state)


def undo(connection: Connection, *, agent_id: str, token: int) -> bool:
    """Delete a spawn of which this first attempt has certainly made nothing."""
    gone = connection.execute(
        sql("""
            DELETE FROM spawns
            WHERE agent_id = :id AND lease_token = :token AND state = 'spawning'
              AND attempts = 1 AND backend_ref IS NULL
        """),
        {"id": agent_id, "token": token},
    )
    return gone.rowcount == 1
