"""Agents that connected: who sees them, under which connection, and since when nobody does.

Lock order everywhere: the spawn first, then its agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, Row

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store.bulk import as_rows, sql


@dataclass(frozen=True, slots=True)
class SpawnFacts:
    """What a registration needs to know of the spawn behind an agent."""

    state: SpawnState
    scaler: str
    backend_type: str
    label_set: tuple[str, ...]
    agent_labels: tuple[str, ...]
    gate: tuple[str, ...]
    warm: bool
    job_id: str | None
    run_id: str | None
    revision_id: int
    machine_id: str | None


_FACTS = tuple(each.name for each in fields(SpawnFacts))
FACTS = ", ".join(_FACTS)


def facts_of(row: Row[Any]) -> SpawnFacts:
    """From a row that has the columns `FACTS`."""
    values = {name: row._mapping[name] for name in _FACTS}
    values["state"] = SpawnState(values["state"])
    for key in ("label_set", "agent_labels", "gate"):
        values[key] = tuple(values[key])
    return SpawnFacts(**values)


def lock_spawn(connection: Connection, agent_id: str) -> SpawnFacts | None:
    """Lock the spawn of an agent for a registration; None when there is none."""
    row = connection.execute(
        sql(f"SELECT {FACTS} FROM spawns WHERE agent_id = :id FOR NO KEY UPDATE"),
        {"id": agent_id},
    ).one_or_none()
    return None if row is None else facts_of(row)


def _lock_spawns(connection: Connection, agent_ids: Iterable[str]) -> None:
    """Take the locks of spawns before those of their agents, as a registration does."""
    connection.execute(
        sql(
            "SELECT FROM spawns WHERE agent_id = ANY(:ids) ORDER BY agent_id FOR NO KEY UPDATE",
            "ids",
        ),
        {"ids": list(agent_ids)},
    )


def adopt(
    connection: Connection,
    *,
    agent_id: str,
    spawn_id: str | None,
    labels: Sequence[str],
    gate: Sequence[str],
    facts: Mapping[str, object],
    gateway: str,
    connection_number: int,
) -> bool:
    """Record a connection; False when a newer one is known already."""
    row = connection.execute(
        sql(
            """
            INSERT INTO agents AS a
                (agent_id, spawn_id, labels, gate, facts, gateway, connection_number)
            VALUES (:id, :spawn, :labels, :gate, CAST(:facts AS jsonb), :gateway, :number)
            ON CONFLICT (agent_id) DO UPDATE SET
                labels = excluded.labels, gate = excluded.gate, facts = excluded.facts,
                gateway = excluded.gateway, connection_number = excluded.connection_number,
                unseen_since = NULL
            WHERE a.connection_number < excluded.connection_number
            RETURNING agent_id
            """,
            "labels",
            "gate",
        ),
        {
            "id": agent_id,
            "spawn": spawn_id,
            "labels": list(labels),
            "gate": list(gate),
            "facts": json.dumps(dict(facts)),
            "gateway": gateway,
            "number": connection_number,
        },
    )
    return row.scalar_one_or_none() is not None


CONNECT = """
    UPDATE spawns SET
        adopter = :adopter,
        idle_at = coalesce(idle_at, clock_timestamp()),
        deadline_at = CASE
            WHEN state = 'busy' THEN deadline_at
            WHEN job_id IS NULL THEN NULL
            WHEN state = 'idle' AND deadline_at IS NOT NULL THEN deadline_at
            ELSE clock_timestamp() + make_interval(secs => :offer) END,
        due_at = CASE
            WHEN state = 'busy' THEN deadline_at
            WHEN job_id IS NULL THEN NULL
            WHEN state = 'idle' AND deadline_at IS NOT NULL THEN deadline_at
            ELSE clock_timestamp() + make_interval(secs => :offer) END,
        due_count = 0,
        state = CASE WHEN state IN ('spawning', 'booting') THEN 'idle' ELSE state END
    WHERE agent_id = :id AND state IN ('spawning', 'booting', 'idle', 'busy')
"""


def connect_spawn(
    connection: Connection, *, agent_id: str, adopter: str, offer_seconds: float
) -> SpawnState:
    """Move a spawn on its agent's (re)connection and stamp the adopter.

    Before registration it becomes idle; with a job its offer must then be accepted in
    time, however often it comes and goes. An idle or busy one keeps its state and gets its
    ordinary deadline back.
    """
    state = connection.execute(
        sql(f"{CONNECT} RETURNING state"),
        {"id": agent_id, "adopter": adopter, "offer": offer_seconds},
    ).scalar_one()
    return SpawnState(state)


def disconnect(
    connection: Connection,
    *,
    gateway: str,
    connections: Sequence[tuple[str, int]],
    settle_seconds: float,
) -> frozenset[str]:
    """Start the absence clocks of closed connections (agent id, connection number).

    Returns the agents this was true of: not those with a newer connection, nor those that
    are over.
    """
    _lock_spawns(connection, (agent for agent, _ in connections))
    rows = connection.execute(
        sql("""
            WITH closed AS (
                SELECT agent_id, connection_number
                FROM jsonb_to_recordset(CAST(:rows AS jsonb))
                  AS c(agent_id text, connection_number bigint)
            ), left_behind AS (
                UPDATE agents a SET unseen_since = clock_timestamp()
                FROM closed c
                WHERE a.agent_id = c.agent_id AND a.gateway = :gateway
                  AND a.connection_number = c.connection_number AND a.unseen_since IS NULL
                RETURNING a.agent_id, a.spawn_id
            ), judged AS (
                UPDATE spawns s SET due_at = clock_timestamp() + make_interval(secs => :settle),
                    due_count = 0
                FROM left_behind l
                WHERE s.agent_id = l.spawn_id AND s.state IN ('idle', 'busy')
            ), static AS (
                UPDATE scale_requests r SET static_due_count = 0,
                    static_due_at = clock_timestamp() + make_interval(secs => :settle)
                FROM left_behind l WHERE r.static_agent = l.agent_id AND l.spawn_id IS NULL
            )
            SELECT agent_id FROM left_behind
        """),
        {"rows": _as_connections(connections), "gateway": gateway, "settle": settle_seconds},
    )
    return frozenset(rows.scalars())


@dataclass(frozen=True, slots=True)
class Errand:
    """Something a gateway should tell one of its connected agents."""

    agent_id: str
    connection_number: int
    state: SpawnState
    job_id: str | None
    run_id: str | None
    cancel_reason: str | None
    destroy_reason: str | None
    overdue: bool = False
    """It does not do what it was told to, and its time for that is over."""


# What is owed is few, whom it may be owed to are many: so it starts from the former, each
# kind by an index of its own.
_ERRANDS = """
    WITH owed AS (
        SELECT agent_id, state, job_id, run_id, destroy_reason,
               CAST(NULL AS text) AS cancel_reason, false AS overdue
        FROM spawns WHERE state = 'idle' AND job_id IS NOT NULL
        UNION ALL
        SELECT agent_id, state, job_id, run_id, destroy_reason, NULL, false
        FROM spawns WHERE state IN ('destroying', 'quarantined')
          -- The connection of an idle provision shows whether its machine really ends.
          AND (backend_type <> 'event' OR busy_at IS NOT NULL OR farewell_at IS NOT NULL)
        UNION ALL
        SELECT s.agent_id, s.state, s.job_id, s.run_id, s.destroy_reason, r.cancel_reason,
               false
        FROM scale_requests r JOIN spawns s ON s.job_id = r.job_id AND s.state = 'busy'
        WHERE r.cancel_reason IS NOT NULL AND r.finished_at IS NULL
        UNION ALL
        SELECT static_agent, CASE state WHEN 'running' THEN 'busy' ELSE 'idle' END, job_id,
               run_id, NULL, cancel_reason, false
        FROM scale_requests WHERE static_agent IS NOT NULL
          AND (state = 'assigned' OR cancel_reason IS NOT NULL)
        UNION ALL
        SELECT agent_id, 'busy', stopping, NULL, NULL, 'the job is no longer this agent''s',
               coalesce(stopping_until < clock_timestamp(), false)
        FROM agents WHERE spawn_id IS NULL AND stopping IS NOT NULL
    )
    SELECT a.agent_id, a.connection_number, o.state, o.job_id, o.run_id, o.cancel_reason,
           o.destroy_reason, o.overdue
    FROM owed o JOIN agents a ON a.agent_id = o.agent_id
    WHERE a.gateway = :gateway AND a.unseen_since IS NULL
"""
_ERRANDS_OF_ALL = sql(_ERRANDS)
_ERRANDS_OF_SOME = sql(f"{_ERRANDS} AND a.agent_id = ANY(:agents)", "agents")


def errands(
    connection: Connection, gateway: str, *, agent_ids: Sequence[str] | None = None
) -> list[Errand]:
    """Offers, cancellations and farewells owed to agents connected to this gateway.

    `agent_ids` None looks at all of them.
    """
    if agent_ids is None:
        rows = connection.execute(_ERRANDS_OF_ALL, {"gateway": gateway})
    else:
        values = {"gateway": gateway, "agents": list(agent_ids)}
        rows = connection.execute(_ERRANDS_OF_SOME, values)
    return [Errand(**{**row._mapping, "state": SpawnState(row.state)}) for row in rows]


def gateway_of(connection: Connection, agent_id: str) -> str | None:
    """The gateway an agent is connected to right now."""
    return connection.execute(
        sql("SELECT gateway FROM agents WHERE agent_id = :id AND unseen_since IS NULL"),
        {"id": agent_id},
    ).scalar_one_or_none()


def reassert(
    connection: Connection, gateway: str, connections: Sequence[tuple[str, int]]
) -> frozenset[str]:
    """Put open connections (agent id, connection number) under a new incarnation, in bulk.

    Only those nobody else adopted meanwhile; their spawns get their ordinary deadline back.
    """
    _lock_spawns(connection, (agent for agent, _ in connections))
    rows = connection.execute(
        sql("""
            WITH mine AS (
                UPDATE agents a SET gateway = :gateway, unseen_since = NULL
                FROM jsonb_to_recordset(CAST(:rows AS jsonb))
                  AS c(agent_id text, connection_number bigint)
                WHERE a.agent_id = c.agent_id AND a.connection_number = c.connection_number
                RETURNING a.agent_id
            ), seen AS (
                UPDATE spawns s SET
                    due_at = CASE WHEN s.state = 'busy' OR s.job_id IS NOT NULL
                        THEN s.deadline_at END,
                    due_count = 0, adopter = :gateway
                FROM mine WHERE s.agent_id = mine.agent_id AND s.state IN ('idle', 'busy')
            ), static AS (
                UPDATE scale_requests r SET static_due_at = static_deadline_at,
                    static_due_count = 0
                FROM mine WHERE r.static_agent = mine.agent_id
            )
            SELECT agent_id FROM mine
        """),
        {"gateway": gateway, "rows": _as_connections(connections)},
    )
    return frozenset(rows.scalars())


def _as_connections(connections: Sequence[tuple[str, int]]) -> str:
    return as_rows(
        {"agent_id": agent, "connection_number": number} for agent, number in connections
    )
