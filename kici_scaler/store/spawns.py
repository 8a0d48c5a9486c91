"""Spawns: one row stands for an agent from its reservation to its confirmed end.

The row is the reservation, so usage is counted from rows, and it describes itself, so
any process can act on it without the configuration that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult

from kici_scaler.domain.limits import Held
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import requests
from kici_scaler.store.bulk import as_rows, columns, plain, sql


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What all spawns have in common that one decision makes of a label set on a machine."""

    scaler: str
    backend_type: str
    revision_id: int
    label_set_index: int
    label_set: tuple[str, ...]
    agent_labels: tuple[str, ...]
    gate: tuple[str, ...]
    roles: tuple[str, ...]
    targets: tuple[str, ...]
    machine_id: str | None
    pool: str | None
    spawn_slots: int
    owner: str


class NewSpawn(NamedTuple):
    """Everything known about a spawn at the moment its capacity is reserved."""

    blueprint: Blueprint
    agent_id: str
    warm: bool
    spawn_timeout_seconds: float
    cpu_millis: int
    memory_bytes: int
    limit_cpu_millis: int | None
    limit_memory_bytes: int | None
    job_id: str | None
    run_id: str | None
    org: str | None
    label_set_digest: str | None = None
    """What it is made from, of agents started ahead of demand."""


@dataclass(frozen=True, slots=True)
class SpawnRow:
    """A live spawn as readers see it."""

    agent_id: str
    state: SpawnState
    scaler: str
    backend_type: str
    machine_id: str | None
    revision_id: int
    label_set: tuple[str, ...]
    agent_labels: tuple[str, ...]
    warm: bool
    cpu_millis: int
    memory_bytes: int
    job_id: str | None
    run_id: str | None
    owner: str
    adopter: str | None
    destroy_reason: str | None
    condemned_why: str | None
    attempts: int
    reserved_at: datetime
    spawning_at: datetime | None
    booting_at: datetime | None
    idle_at: datetime | None
    busy_at: datetime | None
    destroying_at: datetime | None
    quarantined_at: datetime | None
    deadline_at: datetime | None
    due_at: datetime | None
    unseen_since: datetime | None
    gateway: str | None


_INSERT = sql(f"""
    WITH s AS (
        SELECT each.* FROM jsonb_to_record(CAST(:spawns AS jsonb)) AS given(
            blueprint integer[], agent_id text[], warm boolean[],
            spawn_timeout_seconds double precision[], cpu_millis integer[], memory_bytes bigint[],
            limit_cpu_millis integer[], limit_memory_bytes bigint[], job_id text[], run_id text[],
            org text[], label_set_digest text[]),
        unnest(blueprint, agent_id, warm, spawn_timeout_seconds, cpu_millis, memory_bytes,
            limit_cpu_millis, limit_memory_bytes, job_id, run_id, org, label_set_digest)
          WITH ORDINALITY
          AS each(blueprint, agent_id, warm, spawn_timeout_seconds, cpu_millis, memory_bytes,
            limit_cpu_millis, limit_memory_bytes, job_id, run_id, org, label_set_digest, place)
    ), stored AS (
    INSERT INTO spawns
        (state, due_at, agent_id, scaler, backend_type, revision_id, label_set_index, label_set,
         agent_labels, gate, roles, targets, machine_id, pool, warm, spawn_slots,
         spawn_timeout_seconds, cpu_millis, memory_bytes, limit_cpu_millis, limit_memory_bytes,
         job_id, run_id, org, owner, label_set_digest)
    SELECT 'reserved', clock_timestamp() + make_interval(secs => :hint_after), agent_id, scaler,
         backend_type, revision_id, label_set_index, label_set, agent_labels, gate, roles, targets,
         machine_id, pool, warm, spawn_slots, spawn_timeout_seconds, cpu_millis, memory_bytes,
         limit_cpu_millis, limit_memory_bytes, job_id, run_id, org, owner, label_set_digest
    FROM s JOIN jsonb_to_recordset(CAST(:blueprints AS jsonb)) AS b(
         blueprint integer, scaler text, backend_type text, revision_id bigint,
         label_set_index integer, label_set text[], agent_labels text[], gate text[],
         roles text[], targets text[], machine_id text, pool text, spawn_slots integer, owner text)
      USING (blueprint)
    ORDER BY place
    ON CONFLICT (agent_id) DO NOTHING
    RETURNING agent_id, job_id, scaler
    ), assigned AS ({requests.assign("stored")})
    SELECT agent_id FROM stored
""")


def insert(
    connection: Connection, spawns: Sequence[NewSpawn], *, hint_after: float
) -> frozenset[str]:
    """Reserve, in the order given, and mark the waiting requests that they are for.

    Returns the agent ids stored; one that is taken is left out with its request: pick another.
    `hint_after` seconds later the sweep repeats the hint, should it have been lost.
    """
    if not spawns:
        return frozenset()
    blueprints = {id(each.blueprint): each.blueprint for each in spawns}
    numbers = {key: number for number, key in enumerate(blueprints)}
    stored = connection.execute(
        _INSERT,
        {
            "spawns": columns(
                NewSpawn._fields,
                spawns,
                blueprint=[numbers[id(each.blueprint)] for each in spawns],
            ),
            "blueprints": as_rows(
                {**plain(each), "blueprint": numbers[key]} for key, each in blueprints.items()
            ),
            "hint_after": hint_after,
        },
    )
    return frozenset(stored.scalars().all())


_USAGE = """
    SELECT scaler, machine_id, pool, count(*) AS held,
           sum(cpu_millis) AS cpu_millis, sum(memory_bytes) AS memory_bytes
    FROM spawns WHERE {which} GROUP BY scaler, machine_id, pool
"""
_USAGE_OF_ALL = sql(_USAGE.format(which="true"))
_USAGE_OF_ENDING = sql(_USAGE.format(which="state = 'destroying'"))


def usage(connection: Connection) -> list[Held]:
    """What all live rows hold, in one aggregate read; ending ones still hold theirs."""
    return _held(connection.execute(_USAGE_OF_ALL))


class UsageWhenAsked:
    """The same, read the first time it is gone through: jobs given to ready agents need none."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._held: list[Held] | None = None

    def __iter__(self) -> Iterator[Held]:
        if self._held is None:
            self._held = usage(self._connection)
        return iter(self._held)


def ending_usage(connection: Connection) -> list[Held]:
    """What spawns hold that are being torn down, without those set aside."""
    return _held(connection.execute(_USAGE_OF_ENDING))


def _held(rows: CursorResult[Any]) -> list[Held]:
    return [
        Held(r.scaler, r.machine_id, r.pool, r.held, int(r.cpu_millis), int(r.memory_bytes))
        for r in rows
    ]


_VIEW = """
    SELECT s.agent_id, s.state, s.scaler, s.backend_type, s.machine_id, s.revision_id,
           s.label_set, s.agent_labels, s.warm, s.cpu_millis, s.memory_bytes, s.job_id, s.run_id,
           s.owner, s.adopter, s.destroy_reason, s.condemned_why, s.attempts, s.reserved_at,
           s.spawning_at, s.booting_at, s.idle_at, s.busy_at, s.destroying_at,
           s.quarantined_at, s.deadline_at, s.due_at, a.unseen_since, a.gateway
    FROM spawns s LEFT JOIN agents a ON a.spawn_id = s.agent_id
"""


def live(connection: Connection, *, limit: int = 500) -> list[SpawnRow]:
    """Live spawns, oldest first."""
    rows = connection.execute(
        sql(f"{_VIEW} ORDER BY s.reserved_at, s.agent_id LIMIT :n"), {"n": limit}
    )
    return [_spawn(dict(row._mapping)) for row in rows]


def find(connection: Connection, agent_ids: Sequence[str]) -> dict[str, SpawnRow]:
    """The live spawns of these agents, by agent id."""
    rows = connection.execute(
        sql(f"{_VIEW} WHERE s.agent_id = ANY(:ids)", "ids"), {"ids": list(agent_ids)}
    )
    return {row.agent_id: _spawn(dict(row._mapping)) for row in rows}


def counts_by_state(connection: Connection) -> dict[tuple[str, str], int]:
    """How many live spawns each (scaler, state) has."""
    rows = connection.execute(
        sql("SELECT scaler, state, count(*) AS n FROM spawns GROUP BY scaler, state")
    )
    return {(row.scaler, row.state): row.n for row in rows}


def _spawn(values: dict[str, object]) -> SpawnRow:
    values["state"] = SpawnState(str(values["state"]))
    for key in ("label_set", "agent_labels"):
        values[key] = tuple(values[key])  # type: ignore[arg-type]  # a text[] column
    return SpawnRow(**values)  # type: ignore[arg-type]  # columns match the fields by name


def any_of_type(connection: Connection, backend_type: str) -> bool:
    """Whether any live spawn is of a type."""
    row = connection.execute(
        sql("SELECT EXISTS (SELECT 1 FROM spawns WHERE backend_type = :kind)"),
        {"kind": backend_type},
    )
    return bool(row.scalar_one())
