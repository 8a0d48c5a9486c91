"""Whether the database is another than before: another server, or another of its timelines.

After a failover the last commits may be missing, so what rows say of compute may be older than
the compute. Until a person says that this was looked at, nothing is admitted and nothing that
has no row is taken away.
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


def is_held(connection: Connection) -> bool:
    """Whether admission and reclaim are held back."""
    return bool(connection.execute(sql(f"SELECT {HELD}")).scalar_one())


def note(connection: Connection) -> bool:
    """Record which server this is; True when it has just become another. Mostly writes nothing."""
    changed = connection.execute(
        sql("""
            WITH told AS MATERIALIZED (SELECT kici_server_identity() AS identity), other AS (
                UPDATE server_identity s SET identity = told.identity, since = clock_timestamp(),
                    held_since = coalesce(s.held_since, clock_timestamp())
                FROM told WHERE s.identity <> told.identity
                RETURNING s.identity
            ), first AS (
                INSERT INTO server_identity (identity)
                SELECT identity FROM told WHERE identity IS NOT NULL
                  AND NOT EXISTS (SELECT 1 FROM server_identity)
                ON CONFLICT DO NOTHING
            )
            SELECT count(*) FROM other
        """)
    )
    return int(changed.scalar_one()) > 0


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
