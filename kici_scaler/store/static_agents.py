"""Agents that no scaler made: rows among the agents, without a spawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from kici_scaler.domain.static_agents import StaticAgent
from kici_scaler.store.bulk import sql

FREE = """
    a.stopping IS NULL AND coalesce(a.resting_until <= clock_timestamp(), true)
    AND NOT EXISTS (SELECT 1 FROM scale_requests held WHERE held.static_agent = a.agent_id)
"""
"""Whether agent `a` may be offered a job, its connection apart."""


PRESENT = f"""
    SELECT a.agent_id, a.labels, a.gate, {FREE} AS free
    FROM (SELECT * FROM agents WHERE spawn_id IS NULL OFFSET 0) AS a
    JOIN gateways g ON g.incarnation = a.gateway
    WHERE a.unseen_since IS NULL AND g.dead_at IS NULL
    ORDER BY a.registered_at, a.agent_id
"""
"""Those that a living gateway sees, the longest here first, as `parsed` takes them.

They are looked for among themselves: by their gateway all agents of it would be read.
"""


def parsed(values: Mapping[str, Any]) -> StaticAgent:
    """An agent from a row or from JSON."""
    return StaticAgent(
        values["agent_id"], frozenset(values["labels"]), frozenset(values["gate"]), values["free"]
    )


@dataclass(frozen=True, slots=True)
class StaticView:
    """One as a person looks at it; `state` is `idle`, `offered`, `busy` or `stopping`."""

    agent_id: str
    state: str
    labels: tuple[str, ...]
    gate: tuple[str, ...]
    job_id: str | None
    run_id: str | None
    gateway: str | None
    connection_number: int
    registered_at: datetime
    unseen_since: datetime | None
    facts: Mapping[str, object]


def listed(connection: Connection, *, agent_id: str | None = None) -> list[StaticView]:
    """Every one that is not over, the longest here first; or one."""
    rows = connection.execute(
        sql("""
            SELECT a.agent_id, a.labels, a.gate, r.job_id, r.run_id, a.gateway,
                   a.connection_number, a.registered_at, a.unseen_since, a.facts,
                   CASE WHEN r.state = 'running' THEN 'busy' WHEN r.state = 'assigned'
                        THEN 'offered' WHEN a.stopping IS NOT NULL THEN 'stopping'
                        ELSE 'idle' END AS state
            FROM agents a LEFT JOIN scale_requests r ON r.static_agent = a.agent_id
            WHERE a.spawn_id IS NULL AND (CAST(:id AS text) IS NULL OR a.agent_id = :id)
            ORDER BY a.registered_at, a.agent_id
        """),
        {"id": agent_id},
    )
    return [
        StaticView(**{**row._mapping, "labels": tuple(row.labels), "gate": tuple(row.gate)})
        for row in rows
    ]


_CONNECT = sql(
    """
    INSERT INTO agents AS a
        (agent_id, spawn_id, labels, gate, facts, gateway, connection_number)
    VALUES (:id, NULL, :labels, :gate, CAST(:facts AS jsonb), :gateway, :number)
    ON CONFLICT (agent_id) DO UPDATE SET
        labels = excluded.labels, gate = excluded.gate, facts = excluded.facts,
        gateway = excluded.gateway, connection_number = excluded.connection_number,
        unseen_since = NULL, stopping = CASE WHEN a.stopping = :holds THEN a.stopping END
    WHERE a.spawn_id IS NULL
      AND (a.connection_number < excluded.connection_number OR a.unseen_since IS NOT NULL)
    RETURNING agent_id
    """,
    "labels",
    "gate",
)


def connect(
    connection: Connection,
    *,
    agent_id: str,
    labels: Sequence[str],
    gate: Sequence[str],
    facts: str,
    gateway: str,
    connection_number: int,
    holds: str | None = None,
) -> bool:
    """Record a connection; False when a newer one is open.

    `holds` is the job that it says it has; what else it was to stop is over then. One that is
    not connected may begin to count anew: its folder may have been emptied.
    """
    row = connection.execute(
        _CONNECT,
        {
            "id": agent_id,
            "labels": list(labels),
            "gate": list(gate),
            "facts": facts,
            "gateway": gateway,
            "number": connection_number,
            "holds": holds,
        },
    )
    return row.scalar_one_or_none() is not None


def stop(connection: Connection, agent_id: str, job_id: str, *, seconds: float) -> str | None:
    """The agent still works on a job that is no longer its own; the gateway that tells it.

    It has so many seconds for that; being told again does not prolong them.
    """
    return connection.execute(
        sql("""
            UPDATE agents SET stopping = :job, stopping_until = CASE
                WHEN stopping = :job AND stopping_until IS NOT NULL THEN stopping_until
                ELSE clock_timestamp() + make_interval(secs => :grace) END
            WHERE agent_id = :id AND spawn_id IS NULL
            RETURNING CASE WHEN unseen_since IS NULL THEN gateway END
        """),
        {"id": agent_id, "job": job_id, "grace": seconds},
    ).scalar_one_or_none()


def stopped(connection: Connection, agent_id: str, job_id: str) -> None:
    """The agent is done with that job."""
    connection.execute(
        sql(
            "UPDATE agents SET stopping = NULL, stopping_until = NULL"
            " WHERE agent_id = :id AND stopping = :job"
        ),
        {"id": agent_id, "job": job_id},
    )


def not_stopping(connection: Connection) -> list[str]:
    """Connected ones that do not stop a job in the time they had; the longest overdue first."""
    rows = connection.execute(
        sql("""
            SELECT agent_id FROM agents
            WHERE spawn_id IS NULL AND unseen_since IS NULL AND stopping IS NOT NULL
              AND stopping_until < clock_timestamp()
            ORDER BY stopping_until
        """)
    )
    return list(rows.scalars())


def rest(connection: Connection, agent_id: str, *, seconds: float) -> None:
    """Offer this agent nothing for a while: it did not take what it was offered."""
    connection.execute(
        sql("""
            UPDATE agents SET resting_until = clock_timestamp() + make_interval(secs => :seconds)
            WHERE agent_id = :id AND spawn_id IS NULL
        """),
        {"id": agent_id, "seconds": seconds},
    )


def attendance(connection: Connection) -> tuple[int, int]:
    """How many there are, and how many of them nobody sees."""
    row = connection.execute(
        sql("""
            SELECT count(*) AS registered, count(*) FILTER (WHERE unseen_since IS NOT NULL) AS away
            FROM agents WHERE spawn_id IS NULL
        """)
    ).one()
    return int(row.registered), int(row.away)


def forget(connection: Connection, *, agent_id: str, connection_number: int) -> bool:
    """Drop an agent that said it leaves; one with a job stays until that is settled."""
    done = connection.execute(
        sql("""
            DELETE FROM agents a WHERE agent_id = :id AND spawn_id IS NULL
              AND connection_number = :number AND NOT EXISTS (
                SELECT 1 FROM scale_requests r WHERE r.static_agent = a.agent_id)
        """),
        {"id": agent_id, "number": connection_number},
    )
    return done.rowcount == 1


def purge(connection: Connection, *, absent_seconds: float) -> int:
    """Forget those that have been away for so long and have no job."""
    done = connection.execute(
        sql("""
            DELETE FROM agents a WHERE spawn_id IS NULL
              AND unseen_since < clock_timestamp() - make_interval(secs => :absent)
              AND NOT EXISTS (SELECT 1 FROM scale_requests r WHERE r.static_agent = a.agent_id)
        """),
        {"absent": absent_seconds},
    )
    return done.rowcount
