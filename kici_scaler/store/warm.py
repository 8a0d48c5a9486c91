"""Agents that were started ahead of demand: who is there, and a job given to one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import requests
from kici_scaler.store.bulk import records, sql


@dataclass(frozen=True, slots=True)
class ReadyRow:
    """Idle, connected agents that are alike: since when each idles, and its id; oldest first."""

    scaler: str
    label_set: tuple[str, ...]
    label_set_digest: str | None
    machine_id: str | None
    labels: tuple[str, ...]
    gate: tuple[str, ...]
    cpu_millis: int
    memory_bytes: int
    limit_cpu_millis: int | None
    limit_memory_bytes: int | None
    agents: tuple[tuple[datetime, str], ...]


SEEN = "a.unseen_since IS NULL AND g.dead_at IS NULL"
"""An agent `a` whose gateway `g` has it connected."""

_READY = sql(f"""
    SELECT s.scaler, s.label_set, s.label_set_digest, s.machine_id, said.labels, a.gate,
           s.cpu_millis, s.memory_bytes, s.limit_cpu_millis, s.limit_memory_bytes,
           (array_agg(s.agent_id ORDER BY s.idle_at, s.agent_id))[1:CAST(:most AS int)] AS ids,
           (array_agg(s.idle_at ORDER BY s.idle_at, s.agent_id))[1:CAST(:most AS int)] AS since
    FROM spawns s JOIN agents a ON a.spawn_id = s.agent_id
    JOIN gateways g ON g.incarnation = a.gateway
    LEFT JOIN machines m ON m.machine_id = s.machine_id AND m.backend_type = s.backend_type,
    LATERAL (SELECT coalesce(array_agg(label), '{{}}') AS labels FROM unnest(a.labels) AS label
             WHERE :by_host OR label NOT LIKE 'kici:host:%') AS said
    WHERE s.warm AND s.job_id IS NULL AND s.state = 'idle' AND {SEEN}
      AND m.state IS DISTINCT FROM 'draining'
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
""")


def ready(connection: Connection, *, most: int, by_host: bool = True) -> list[ReadyRow]:
    """Agents that could be given a job now, at most so many of each kind.

    Without `by_host` the labels that name each agent's own host are left out, so that many
    agents are few kinds.
    """
    return [
        ready_row(row._asdict(), tuple(zip(row.since, row.ids, strict=True)))
        for row in connection.execute(_READY, {"most": most, "by_host": by_host})
    ]


def ready_row(values: Mapping[str, Any], agents: tuple[tuple[datetime, str], ...]) -> ReadyRow:
    """Agents that are alike, from what one row says of them."""
    return ReadyRow(
        scaler=values["scaler"],
        label_set=tuple(values["label_set"]),
        label_set_digest=values["label_set_digest"],
        machine_id=values["machine_id"],
        labels=tuple(values["labels"]),
        gate=tuple(values["gate"]),
        cpu_millis=values["cpu_millis"],
        memory_bytes=values["memory_bytes"],
        limit_cpu_millis=values["limit_cpu_millis"],
        limit_memory_bytes=values["limit_memory_bytes"],
        agents=agents,
    )


@dataclass(frozen=True, slots=True)
class Binding:
    """A job for an agent that waits for one."""

    job_id: str
    run_id: str
    org: str | None
    agent_id: str
    scaler: str
    pool: str
    """Identity of the agent's label set, for what is counted."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An agent that has a job now, and the gateway that is to offer it."""

    agent_id: str
    job_id: str
    run_id: str
    gateway: str


FREE = """
        FROM wanted w CROSS JOIN LATERAL (
            SELECT a.gateway FROM spawns s JOIN agents a ON a.spawn_id = s.agent_id
            WHERE s.agent_id = w.agent_id
              AND s.warm AND s.job_id IS NULL AND s.state = 'idle' AND a.unseen_since IS NULL
            FOR NO KEY UPDATE OF s, a SKIP LOCKED
        ) AS a
"""
"""Where those of `wanted` are locked whose agent still has no job and is still seen.

Each is found by itself: nobody knows how many are wanted, and for many all of the pool is read.
"""
TAKE = """
        UPDATE spawns s SET job_id = free.job_id, run_id = free.run_id, org = free.org,
            deadline_at = clock_timestamp() + make_interval(secs => :offer),
            due_at = clock_timestamp() + make_interval(secs => :offer), due_count = 0
"""
"""What the agents of `free` are told by; a condition follows."""
COUNT_HITS = """
        INSERT INTO warm_counts (scaler, label_set, what, n)
        SELECT scaler, pool, 'hit', count(*) FROM free JOIN bound USING (agent_id)
        GROUP BY scaler, pool
"""
"""Each of `bound` is a hit of its pool."""

_BIND = sql(f"""
    WITH wanted AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb))
          AS w(job_id text, run_id text, org text, agent_id text, scaler text, pool text)
    ), free AS (
        SELECT w.*, a.gateway {FREE}
    ), bound AS (
        {TAKE} FROM free WHERE s.agent_id = free.agent_id
        RETURNING s.agent_id, s.job_id
    ), assigned AS ({requests.assign("free")}), counted AS ({COUNT_HITS})
    SELECT bound.agent_id, bound.job_id, free.run_id, free.gateway
    FROM bound JOIN free USING (agent_id)
""")


def bind(
    connection: Connection, bindings: Iterable[Binding], *, offer_seconds: float
) -> list[Bound]:
    """Give waiting jobs to idle agents, each only if it still has none and is still seen.

    Each that is given counts as a hit of its pool.

    Whoever is worked on by somebody else at this moment is passed over. The requests must be
    locked by the caller; those of agents that were not got stay as they are.
    """
    rows = connection.execute(_BIND, {"rows": records(bindings), "offer": offer_seconds})
    return [Bound(**row._mapping) for row in rows]


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A live agent that was started for a pool and never had a job.

    `labels` are what it said of itself too, once it registered.
    """

    agent_id: str
    state: SpawnState
    scaler: str
    label_set: tuple[str, ...]
    label_set_index: int
    label_set_digest: str | None
    machine_id: str | None
    pool: str | None
    labels: tuple[str, ...]
    gate: tuple[str, ...]
    cpu_millis: int
    memory_bytes: int
    limit_cpu_millis: int | None
    limit_memory_bytes: int | None
    is_present: bool
    machine_drains: bool
    idle_seconds: float


_MEMBERS = sql(f"""
    SELECT s.agent_id, s.state, s.scaler, s.label_set, s.label_set_index, s.label_set_digest,
           s.machine_id, s.pool, coalesce(a.labels, s.agent_labels) AS labels, s.gate,
           s.cpu_millis, s.memory_bytes, s.limit_cpu_millis, s.limit_memory_bytes,
           a.agent_id IS NOT NULL AND {SEEN} AS is_present,
           coalesce(m.state = 'draining', false) AS machine_drains,
           coalesce(extract(epoch FROM clock_timestamp() - s.idle_at), 0) AS idle_seconds
    FROM spawns s LEFT JOIN agents a ON a.spawn_id = s.agent_id
    LEFT JOIN gateways g ON g.incarnation = a.gateway
    LEFT JOIN machines m ON m.machine_id = s.machine_id AND m.backend_type = s.backend_type
    WHERE s.warm AND s.job_id IS NULL
      AND (CAST(:agent AS text) IS NULL OR s.agent_id = :agent)
""")


def members(connection: Connection, *, agent_id: str | None = None) -> list[MemberRow]:
    """Everybody who was started for a pool and never had a job, in whatever state; or one."""
    return [
        MemberRow(
            agent, SpawnState(state), scaler, tuple(label_set), index, digest, machine, pool,
            tuple(labels), tuple(gate), cpu, memory, most_cpu, most_memory, is_present, drains,
            float(idle_seconds),
        )
        for agent, state, scaler, label_set, index, digest, machine, pool, labels, gate, cpu,
            memory, most_cpu, most_memory, is_present, drains, idle_seconds
        in connection.execute(_MEMBERS, {"agent": agent_id})
    ]  # fmt: skip


def static_agents(connection: Connection) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Labels and gate of the connected agents that no scaler made and that have no job."""
    rows = connection.execute(
        sql("""
            SELECT labels, gate FROM agents a
            WHERE spawn_id IS NULL AND unseen_since IS NULL AND stopping IS NULL
              AND NOT EXISTS (SELECT 1 FROM scale_requests r WHERE r.static_agent = a.agent_id)
        """)
    )
    return [(tuple(row.labels), tuple(row.gate)) for row in rows]


def lock_free(connection: Connection, agent_ids: Sequence[str]) -> list[str]:
    """Lock those of these agents that still have no job and whom nobody else works on."""
    rows = connection.execute(
        sql(
            """
            SELECT agent_id FROM spawns
            WHERE agent_id = ANY(:ids) AND warm AND job_id IS NULL
              AND state IN ('reserved', 'spawning', 'booting', 'idle')
            ORDER BY agent_id FOR UPDATE SKIP LOCKED
            """,
            "ids",
        ),
        {"ids": list(agent_ids)},
    )
    return list(rows.scalars())
