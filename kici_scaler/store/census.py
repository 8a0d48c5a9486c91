"""Counts for people: what lives, waits and serves, in a few aggregate reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store import static_agents as static_rows
from kici_scaler.store.bulk import sql


@dataclass(frozen=True, slots=True)
class SpawnCount:
    """How many spawns of a scaler are in a state on a machine, and what they hold.

    `is_ready_warm`: idle, made for the warm pool, without a job.
    """

    scaler: str
    backend_type: str
    machine_id: str | None
    state: SpawnState
    is_ready_warm: bool
    count: int
    cpu_millis: int
    memory_bytes: int


def spawns(connection: Connection) -> list[SpawnCount]:
    """Every live spawn, counted."""
    rows = connection.execute(
        sql("""
            SELECT scaler, backend_type, machine_id, state,
                   state = 'idle' AND warm AND job_id IS NULL AS is_ready_warm,
                   count(*) AS count, sum(cpu_millis)::bigint AS cpu_millis,
                   sum(memory_bytes)::bigint AS memory_bytes
            FROM spawns GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 3, 4
        """)
    )
    return [SpawnCount(**{**row._mapping, "state": SpawnState(row.state)}) for row in rows]


def requests(connection: Connection) -> dict[str, int]:
    """How many requests that are not over are in each state."""
    rows = connection.execute(
        sql("""
            SELECT state, count(*) AS held FROM scale_requests
            WHERE finished_at IS NULL GROUP BY state
        """)
    )
    return {row.state: row.held for row in rows}


def static_agents(connection: Connection) -> dict[str, int]:
    """How many connected agents that no scaler made do what."""
    found = static_rows.listed(connection)
    return dict(Counter(each.state for each in found if each.unseen_since is None))


@dataclass(frozen=True, slots=True)
class GatewayCount:
    """A gateway incarnation that was not declared dead, and the agents it sees."""

    incarnation: str
    host: str
    started_at: datetime
    last_heartbeat: datetime
    is_fresh: bool
    agents: int


def gateways(connection: Connection, *, fresh_seconds: float) -> list[GatewayCount]:
    """Every gateway that may adopt."""
    rows = connection.execute(
        sql("""
            SELECT g.incarnation, g.host, g.started_at, g.last_heartbeat,
                   g.last_heartbeat > clock_timestamp() - make_interval(secs => :fresh)
                       AS is_fresh,
                   (SELECT count(*) FROM agents a
                    WHERE a.gateway = g.incarnation AND a.unseen_since IS NULL) AS agents
            FROM gateways g WHERE g.dead_at IS NULL ORDER BY g.started_at
        """),
        {"fresh": fresh_seconds},
    )
    return [GatewayCount(**row._mapping) for row in rows]
