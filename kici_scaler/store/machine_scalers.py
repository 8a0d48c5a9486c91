"""Scalers that a machine cannot run at the moment, as its worker found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.store.bulk import sql

_REPORT = sql("""
    WITH said AS (
        SELECT key AS scaler, value AS reason FROM jsonb_each_text(CAST(:found AS jsonb))
    ), mended AS (
        DELETE FROM machine_scalers m WHERE machine_id = :machine AND backend_type = :kind
          AND NOT EXISTS (SELECT 1 FROM said WHERE said.scaler = m.scaler)
        RETURNING m.scaler
    ), broken AS (
        INSERT INTO machine_scalers AS m (machine_id, backend_type, scaler, reason)
        SELECT machine_id, backend_type, said.scaler, said.reason
        FROM said, machines WHERE machine_id = :machine AND backend_type = :kind
        ON CONFLICT (machine_id, backend_type, scaler) DO UPDATE SET reason = excluded.reason
        WHERE m.reason <> excluded.reason
        RETURNING m.scaler
    )
    SELECT 'mended' AS what, scaler FROM mended UNION ALL SELECT 'broken', scaler FROM broken
    ORDER BY 1, 2
""")


@dataclass(frozen=True, slots=True)
class Reported:
    """What a report changed: scalers the machine can run again, and ones it cannot any more."""

    mended: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


def report(
    connection: Connection, machine_id: str, backend_type: str, found: Mapping[str, str]
) -> Reported:
    """Replace what is known of a machine: the reason by scaler that cannot run there.

    A machine that nobody announced is left out; its worker reports again once it has.
    """
    rows = connection.execute(
        _REPORT,
        {"machine": machine_id, "kind": backend_type, "found": json.dumps(dict(found))},
    ).all()
    return Reported(
        tuple(row.scaler for row in rows if row.what == "mended"),
        tuple(row.scaler for row in rows if row.what == "broken"),
    )


def reserved(
    connection: Connection, machine_id: str, backend_type: str, scalers: Sequence[str]
) -> list[str]:
    """Spawns of these scalers that have room on the machine and of which nothing exists yet."""
    rows = connection.execute(
        sql(
            """
            SELECT agent_id FROM spawns
            WHERE machine_id = :machine AND backend_type = :kind AND state = 'reserved'
              AND scaler = ANY(:scalers)
            """,
            "scalers",
        ),
        {"machine": machine_id, "kind": backend_type, "scalers": list(scalers)},
    )
    return list(rows.scalars())
