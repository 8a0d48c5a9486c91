"""Scalers that left the configuration and still have agents, and what is given up for a reload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.store.bulk import sql

OVER_WITH_ITS_LAST = """
    over AS (
        DELETE FROM scaler_states t USING gone
        WHERE t.scaler = gone.scaler AND t.standing = 'retiring'
          AND NOT EXISTS (SELECT 1 FROM spawns s WHERE s.scaler = t.scaler
                          AND s.agent_id NOT IN (SELECT agent_id FROM gone))
    )
"""
"""Part of a statement that deletes spawns as `gone` (agent_id, scaler): a retiring scaler is
over with its last one. Two that go at the same moment see each other; retention finds that."""


def all_retiring(connection: Connection) -> dict[str, int]:
    """The revision each retiring scaler was last in, by name."""
    rows = connection.execute(
        sql("SELECT scaler, revision_id FROM scaler_states WHERE standing = 'retiring'")
    )
    return {row.scaler: row.revision_id for row in rows}


def with_agents(connection: Connection) -> dict[str, int]:
    """Those of `all_retiring` that any agent is left of; the others are over already."""
    rows = connection.execute(
        sql("""
            SELECT scaler, revision_id FROM scaler_states t
            WHERE standing = 'retiring'
              AND EXISTS (SELECT 1 FROM spawns s WHERE s.scaler = t.scaler)
        """)
    )
    return {row.scaler: row.revision_id for row in rows}


def retire(connection: Connection, scalers: Sequence[str], *, revision_id: int) -> None:
    """Mark scalers as retiring; they keep the revision they were last in."""
    connection.execute(
        sql(
            """
            INSERT INTO scaler_states (scaler, standing, reason, revision_id)
            SELECT name, 'retiring', 'it left the configuration', :revision
            FROM unnest(CAST(:scalers AS text[])) AS name
            ON CONFLICT (scaler) DO UPDATE SET standing = 'retiring',
                reason = excluded.reason, revision_id = excluded.revision_id,
                changed_at = clock_timestamp(), since = clock_timestamp()
            """,
            "scalers",
        ),
        {"scalers": sorted(scalers), "revision": revision_id},
    )


def take_back(connection: Connection, scalers: Sequence[str]) -> list[str]:
    """Retiring scalers that are in the configuration again; returns them."""
    rows = connection.execute(
        sql(
            """
            UPDATE scaler_states SET standing = 'active', reason = '', revision_id = NULL,
                changed_at = clock_timestamp(), since = clock_timestamp()
            WHERE scaler = ANY(:scalers) AND standing = 'retiring' RETURNING scaler
            """,
            "scalers",
        ),
        {"scalers": list(scalers)},
    )
    return list(rows.scalars())


def forget_gone(connection: Connection) -> list[str]:
    """Retiring scalers whose last agent is gone are over; returns them."""
    rows = connection.execute(
        sql("""
            DELETE FROM scaler_states t
            WHERE standing = 'retiring'
              AND NOT EXISTS (SELECT 1 FROM spawns s WHERE s.scaler = t.scaler)
            RETURNING scaler
        """)
    )
    return list(rows.scalars())


@dataclass(frozen=True, slots=True)
class Needless:
    """A spawn that nothing is lost with."""

    agent_id: str
    scaler: str
    state: SpawnState
    job_id: str | None
    may_wait: bool
    """Whether its job, if it has one, may wait again."""


def lock_needless(connection: Connection, scalers: Sequence[str]) -> list[Needless]:
    """Lock the spawns of these scalers that nothing is lost with: reserved ones, jobless ones."""
    rows = connection.execute(
        sql(
            """
            SELECT s.agent_id, s.scaler, s.state, s.job_id, coalesce(r.may_wait, true) AS may_wait
            FROM spawns s LEFT JOIN scale_requests r ON r.job_id = s.job_id
            WHERE s.scaler = ANY(:scalers)
              AND (s.state = 'reserved'
                   OR (s.job_id IS NULL AND s.state IN ('spawning', 'booting', 'idle')))
            ORDER BY s.agent_id FOR UPDATE OF s
            """,
            "scalers",
        ),
        {"scalers": list(scalers)},
    )
    return [Needless(**{**row._mapping, "state": SpawnState(row.state)}) for row in rows]


def live_counts(connection: Connection, scalers: Sequence[str]) -> dict[str, dict[SpawnState, int]]:
    """How many live spawns these scalers have in each state; scalers without any are left out."""
    rows = connection.execute(
        sql(
            """
            SELECT scaler, state, count(*) AS held FROM spawns
            WHERE scaler = ANY(:scalers) GROUP BY scaler, state ORDER BY scaler
            """,
            "scalers",
        ),
        {"scalers": list(scalers)},
    )
    found: dict[str, dict[SpawnState, int]] = {}
    for row in rows:
        found.setdefault(row.scaler, {})[SpawnState(row.state)] = row.held
    return found
