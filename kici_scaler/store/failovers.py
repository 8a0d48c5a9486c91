"""Whether the database is another than before: another server, or another of its timelines.

After a failover the last commits may be missing, so what rows say of compute may be older than
the compute. Until every machine was listed and agrees, or a person says that this was looked at,
nothing is admitted and nothing that has no row is taken away.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.store.bulk import sql

HELD = """
    coalesce((SELECT held_since IS NOT NULL OR identity <> kici_server_identity()
              FROM server_identity), false)
"""
"""Whether things are held back, as an expression; true from the first statement on another
server on, before anybody noted it."""


_IS_NOT_NOTED = """
    NOT EXISTS (SELECT 1 FROM server_identity) AND kici_server_identity() IS NOT NULL
"""

IS_ANY_CHANGE = f"({HELD} OR {_IS_NOT_NOTED})"
"""Whether `note` would have anything to say or to write, as an expression."""


def is_held(connection: Connection) -> bool:
    """Whether admission and reclaim are held back."""
    return bool(connection.execute(sql(f"SELECT {HELD}")).scalar_one())


@dataclass(frozen=True, slots=True)
class Noted:
    """Whether the server has just become another, and whether things are held back."""

    changed: bool
    held: bool


def note(connection: Connection) -> Noted:
    """Record which server this is; mostly writes nothing."""
    row = connection.execute(
        sql(f"""
            WITH told AS MATERIALIZED (SELECT kici_server_identity() AS identity), other AS (
                UPDATE server_identity s SET identity = told.identity, since = clock_timestamp(),
                    held_since = coalesce(s.held_since, clock_timestamp())
                FROM told WHERE s.identity <> told.identity
                RETURNING s.identity
            ), first AS (
                INSERT INTO server_identity (identity)
                SELECT identity FROM told WHERE {_IS_NOT_NOTED}
                ON CONFLICT DO NOTHING
            )
            SELECT EXISTS (SELECT 1 FROM other) AS changed,
                   coalesce((SELECT held_since IS NOT NULL FROM server_identity), false) AS held
        """)
    ).one()
    return Noted(row.changed, row.changed or row.held)


def lift(connection: Connection) -> bool:
    """Hold nothing back any more; False when nothing was."""
    note(connection)
    lifted = connection.execute(
        sql("UPDATE server_identity SET held_since = NULL WHERE held_since IS NOT NULL")
    )
    return lifted.rowcount == 1


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of the server; `identity` None where the role may not ask for it."""

    identity: str | None
    held: bool
    held_since: datetime | None
    """None also while nobody has noted it yet."""


def standing(connection: Connection) -> Standing:
    """Whether things are held back, and since when."""
    row = connection.execute(
        sql(f"""
            SELECT kici_server_identity() AS identity, {HELD} AS held,
                   (SELECT held_since FROM server_identity) AS held_since
        """)
    ).one()
    return Standing(row.identity, row.held, row.held_since)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A machine that keeps things held back.

    `strangers` is how many agents it holds that no row stands for; None: it was not listed since.
    """

    machine_id: str
    backend_type: str
    strangers: int | None


def note_stock(
    connection: Connection, *, backend_type: str, machine_id: str, strangers: int
) -> None:
    """A machine was listed whole; so many of the agents on it have no row."""
    connection.execute(
        sql("""
            INSERT INTO duties AS d (duty, ticked_at, reached)
            VALUES ('stock:' || :kind || ':' || :machine, clock_timestamp(), :strangers)
            ON CONFLICT (duty) DO UPDATE SET
                ticked_at = excluded.ticked_at, reached = excluded.reached
        """),
        {"kind": backend_type, "machine": machine_id, "strangers": strangers},
    )


def disagreements(connection: Connection) -> list[Disagreement]:
    """While things are held back: machines that were not listed since, or hold strangers."""
    rows = connection.execute(
        sql("""
            SELECT m.machine_id, m.backend_type,
                   CASE WHEN d.ticked_at > s.held_since THEN d.reached END AS strangers
            FROM server_identity s CROSS JOIN machines m
            LEFT JOIN duties d ON d.duty = 'stock:' || m.backend_type || ':' || m.machine_id
            WHERE s.held_since IS NOT NULL
              AND (d.ticked_at IS NULL OR d.ticked_at <= s.held_since OR d.reached > 0)
            ORDER BY m.machine_id, m.backend_type
        """)
    )
    return [Disagreement(**row._mapping) for row in rows]
