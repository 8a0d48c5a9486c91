"""Rows that go by a person's word instead of a backend's confirmation."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from kici_scaler.store.bulk import sql
from kici_scaler.store.retiring import OVER_WITH_ITS_LAST


def forget(connection: Connection, *, agent_ids: Sequence[str]) -> list[str]:
    """Delete ending spawns that nobody holds a lease on; their outcomes say so."""
    rows = connection.execute(
        sql(
            f"""
            WITH gone AS (
                DELETE FROM spawns
                WHERE agent_id = ANY(:ids) AND state IN ('destroying', 'quarantined')
                  AND coalesce(lease_expires_at, '-infinity') < clock_timestamp()
                RETURNING agent_id, scaler
            ), {OVER_WITH_ITS_LAST}, told AS (
                UPDATE outcomes o SET gone_at = clock_timestamp(), updated_at = clock_timestamp(),
                    timings = o.timings || jsonb_build_object('gone', clock_timestamp()),
                    exit_cause = coalesce(o.exit_cause,
                        jsonb_build_object('kind', 'said-to-be-gone'))
                FROM gone WHERE o.agent_id = gone.agent_id
            )
            SELECT agent_id FROM gone
            """,
            "ids",
        ),
        {"ids": list(agent_ids)},
    )
    return list(rows.scalars())


def exists(connection: Connection, agent_id: str) -> bool:
    """Whether a live spawn row of that id is left."""
    row = connection.execute(
        sql("SELECT EXISTS (SELECT 1 FROM spawns WHERE agent_id = :id)"), {"id": agent_id}
    )
    return bool(row.scalar_one())


def on_machine(connection: Connection, machine_id: str) -> list[str]:
    """Every spawn of a machine."""
    rows = connection.execute(
        sql("SELECT agent_id FROM spawns WHERE machine_id = :id"), {"id": machine_id}
    )
    return list(rows.scalars())


def drop_machine(connection: Connection, machine_id: str) -> None:
    """Forget a machine; a worker that announces it makes a new row."""
    connection.execute(sql("DELETE FROM machines WHERE machine_id = :id"), {"id": machine_id})
