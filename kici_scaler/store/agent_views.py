"""Agents as a person looks at them: what they are now, and how they got there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.engine import Row

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store.bulk import sql


@dataclass(frozen=True, slots=True)
class AgentView:
    """A live spawn with its connection, if it ever had one."""

    agent_id: str
    state: SpawnState
    scaler: str
    backend_type: str
    machine_id: str | None
    revision_id: int
    reserved_by: str
    label_set: tuple[str, ...]
    labels: tuple[str, ...]
    gate: tuple[str, ...]
    warm: bool
    cpu_millis: int
    memory_bytes: int
    job_id: str | None
    run_id: str | None
    destroy_reason: str | None
    condemned_why: str | None
    attempts: int
    gateway: str | None
    connection_number: int | None
    unseen_since: datetime | None
    facts: Mapping[str, object] | None
    timings: Mapping[str, str]
    deadline_at: datetime | None


_SELECT = """
    SELECT s.agent_id, s.state, s.scaler, s.backend_type, s.machine_id, s.revision_id,
           s.owner AS reserved_by, s.label_set, coalesce(a.labels, s.agent_labels) AS labels,
           s.gate, s.warm,
           s.cpu_millis, s.memory_bytes, s.job_id, s.run_id, s.destroy_reason,
           s.condemned_why, s.attempts, a.gateway, a.connection_number, a.unseen_since,
           a.facts, s.deadline_at,
           jsonb_strip_nulls(jsonb_build_object(
               'reserved', s.reserved_at, 'spawning', s.spawning_at, 'booting', s.booting_at,
               'idle', s.idle_at, 'busy', s.busy_at, 'destroying', s.destroying_at,
               'quarantined', s.quarantined_at)) AS timings
    FROM spawns s LEFT JOIN agents a ON a.spawn_id = s.agent_id
"""


def listed(
    connection: Connection,
    *,
    scaler: str | None = None,
    states: Sequence[str] | None = None,
    limit: int = 500,
) -> list[AgentView]:
    """Live agents, oldest first; of one scaler, or in some states, if asked."""
    rows = connection.execute(
        sql(
            f"""
            {_SELECT}
            WHERE (CAST(:scaler AS text) IS NULL OR s.scaler = :scaler)
              AND (NOT :only OR s.state = ANY(:states))
            ORDER BY s.reserved_at, s.agent_id LIMIT :n
            """,
            "states",
        ),
        {"scaler": scaler, "only": states is not None, "states": list(states or ()), "n": limit},
    )
    return [_view(row) for row in rows]


def find(connection: Connection, agent_id: str) -> AgentView | None:
    """One live agent."""
    row = connection.execute(sql(f"{_SELECT} WHERE s.agent_id = :id"), {"id": agent_id})
    found = row.one_or_none()
    return None if found is None else _view(found)


LAST_AGENT = """
    (SELECT agent_id FROM (
        SELECT o.agent_id, coalesce(o.adopted_at, o.updated_at) AS at FROM outcomes o
        WHERE o.job_id = r.job_id
        UNION ALL
        SELECT e.agent_id, e.at FROM events e
        WHERE e.job_id = r.job_id AND e.agent_id IS NOT NULL AND e.type = 'request.finished'
    ) AS known ORDER BY at DESC LIMIT 1)
"""
"""The agent that the job of request `r` had last, as an expression; for a job that is over."""


def agent_of_job(connection: Connection, job_id: str) -> str | None:
    """The agent that has a job, or had it last."""
    return connection.execute(
        sql("""
            SELECT agent_id FROM (
                SELECT agent_id, 0 AS rank, reserved_at AS at FROM spawns WHERE job_id = :job
                UNION ALL
                SELECT static_agent, 0, clock_timestamp() FROM scale_requests
                WHERE job_id = :job AND static_agent IS NOT NULL
                UNION ALL
                SELECT agent_id, 1, coalesce(adopted_at, updated_at) FROM outcomes
                WHERE job_id = :job
                UNION ALL
                SELECT agent_id, CASE type WHEN 'request.finished' THEN 1 ELSE 2 END, at
                FROM events WHERE job_id = :job AND agent_id IS NOT NULL
            ) AS known ORDER BY rank, at DESC LIMIT 1
        """),
        {"job": job_id},
    ).scalar_one_or_none()


def _view(row: Row[tuple[object, ...]]) -> AgentView:
    values = dict(row._mapping)
    values["state"] = SpawnState(values["state"])
    for key in ("label_set", "labels", "gate"):
        values[key] = tuple(values[key])
    return AgentView(**values)
