"""Scalers that left the configuration and still have agents."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from kici_scaler.store.bulk import sql


def all_retiring(connection: Connection) -> dict[str, int]:
    """The revision each retiring scaler was last in, by name."""
    rows = connection.execute(
        sql("SELECT scaler, revision_id FROM scaler_states WHERE standing = 'retiring'")
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
                changed_at = clock_timestamp()
            """,
            "scalers",
        ),
        {"scalers": list(scalers), "revision": revision_id},
    )


def take_back(connection: Connection, scalers: Sequence[str]) -> list[str]:
    """Retiring scalers that are in the configuration again; returns them."""
    rows = connection.execute(
        sql(
            """
            UPDATE scaler_states SET standing = 'active', reason = '', revision_id = NULL,
                changed_at = clock_timestamp()
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


def not_needed(connection: Connection, scalers: Sequence[str]) -> tuple[list[str], list[str]]:
    """Spawns of these scalers that nothing is lost with: reserved ones, and idle warm ones."""
    rows = connection.execute(
        sql(
            """
            SELECT agent_id, state FROM spawns
            WHERE scaler = ANY(:scalers)
              AND (state = 'reserved' OR (state = 'idle' AND job_id IS NULL))
            """,
            "scalers",
        ),
        {"scalers": list(scalers)},
    ).all()
    return (
        [row.agent_id for row in rows if row.state == "reserved"],
        [row.agent_id for row in rows if row.state == "idle"],
    )


def live_counts(connection: Connection, scalers: Sequence[str]) -> dict[str, int]:
    """How many live spawns these scalers have."""
    rows = connection.execute(
        sql(
            "SELECT scaler, count(*) AS held FROM spawns WHERE scaler = ANY(:scalers)"
            " GROUP BY scaler",
            "scalers",
        ),
        {"scalers": list(scalers)},
    )
    return {row.scaler: row.held for row in rows}
