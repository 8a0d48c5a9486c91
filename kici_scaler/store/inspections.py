"""What a backend worker needs to know of spawns it is asked to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store.bulk import sql


@dataclass(frozen=True, slots=True)
class Inspected:
    """A spawn whose compute should be there, and whose agent is not connected."""

    agent_id: str
    state: SpawnState
    scaler: str
    revision_id: int
    token: int
    ref: Mapping[str, str]
    job_id: str | None
    run_id: str | None


def missing(connection: Connection, agent_ids: Sequence[str]) -> list[Inspected]:
    """Of these spawns, the created ones whose agent nobody sees."""
    rows = connection.execute(
        sql(
            """
            SELECT s.agent_id, s.state, s.scaler, s.revision_id, s.lease_token AS token,
                   s.backend_ref AS ref, s.job_id, s.run_id
            FROM spawns s LEFT JOIN agents a ON a.spawn_id = s.agent_id
            WHERE s.agent_id = ANY(:ids) AND s.backend_ref IS NOT NULL
              AND (s.state = 'booting'
                   OR (s.state IN ('idle', 'busy') AND a.unseen_since IS NOT NULL))
            """,
            "ids",
        ),
        {"ids": list(agent_ids)},
    )
    return [Inspected(**{**row._mapping, "state": SpawnState(row.state)}) for row in rows]


def still_missing(connection: Connection, agent_id: str, state: SpawnState) -> bool:
    """Whether the spawn is still in that state and unseen; locks it against a return.

    The lock is a statement of its own: an agent that returned while it was waited for shows
    only to a statement that begins after that.
    """
    locked = connection.execute(
        sql("""
            SELECT agent_id FROM spawns
            WHERE agent_id = :id AND state = :state FOR NO KEY UPDATE
        """),
        {"id": agent_id, "state": state.value},
    ).scalar_one_or_none()
    if locked is None:
        return False
    seen = connection.execute(
        sql("SELECT 1 FROM agents WHERE spawn_id = :id AND unseen_since IS NULL"),
        {"id": agent_id},
    )
    return seen.scalar_one_or_none() is None


def known(connection: Connection, agent_ids: Sequence[str]) -> frozenset[str]:
    """Of these agents, those with a live spawn row."""
    rows = connection.execute(
        sql("SELECT agent_id FROM spawns WHERE agent_id = ANY(:ids)", "ids"),
        {"ids": list(agent_ids)},
    )
    return frozenset(rows.scalars())


def unseen_here(connection: Connection, *, backend_type: str, machine_id: str | None) -> list[str]:
    """Created spawns of a machine whose agent is not connected."""
    here = "s.machine_id IS NULL" if machine_id is None else "s.machine_id = :machine"
    rows = connection.execute(
        sql(f"""
            SELECT s.agent_id FROM spawns s LEFT JOIN agents a ON a.spawn_id = s.agent_id
            WHERE {here} AND s.backend_type = :kind AND s.backend_ref IS NOT NULL
              AND (s.state = 'booting'
                   OR (s.state IN ('idle', 'busy') AND a.unseen_since IS NOT NULL))
            LIMIT 1000
        """),
        {"kind": backend_type, "machine": machine_id},
    )
    return list(rows.scalars())
