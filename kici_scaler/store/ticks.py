"""A tick of the sweep that finds nothing to do, as one statement; whether it does, for each part.

What is to do is said by the modules that do it, in the words that they look for it with. A tick
that finds anything is not claimed here: it stays whole in the transaction that does the work.

The commit of such a tick waits for no disk. What a crash of the server may take back of it is that
somebody watched, a moment before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.store import (
    deliveries,
    due,
    duties,
    failovers,
    gateways,
    machines,
    observation,
    requests,
    static_jobs,
)
from kici_scaler.store.bulk import sql
from kici_scaler.store.settings import window

_WINDOWS = ("gateway_stale_seconds", "machine_stale_seconds")
_GATEWAY_STALE, _MACHINE_STALE = (f"(SELECT {name} FROM windows)" for name in _WINDOWS)

PARTS: Mapping[str, str] = {
    "another_server": failovers.IS_ANY_CHANGE,
    "silent_gateways": gateways.any_fell_silent(_GATEWAY_STALE),
    "forsaken_agents": gateways.IS_ANY_FORSAKEN,
    "silent_machines": machines.any_fell_silent(_MACHINE_STALE),
    "nobody_watching": f"NOT {gateways.is_any_fresh(_GATEWAY_STALE)}",
    "unwatched_time": f"NOT {observation.IS_UNBROKEN}",
    "due_spawns": due.IS_ANY_DUE,
    "due_deliveries": deliveries.IS_ANY_DUE,
    "waiting_requests": requests.IS_ANY_WAITING,
    "due_static_jobs": static_jobs.IS_ANY_DUE,
}
"""Whether there is anything to do for each part of a sweep, as expressions."""

_NAMED = ", ".join(f"CASE WHEN {part} THEN '{part}' END" for part in PARTS)

_TICK = sql(f"""
    WITH windows AS MATERIALIZED (
        SELECT {", ".join(f"{window(name)} AS {name}" for name in _WINDOWS)}
    ), found AS MATERIALIZED (
        SELECT {", ".join(f"{expression} AS {part}" for part, expression in PARTS.items())},
            coalesce((SELECT {duties.IS_TIME} FROM duties d WHERE d.duty = :duty), true) AS is_time
    ), claimed AS (
        UPDATE duties d SET ticked_at = clock_timestamp() FROM found
        WHERE d.duty = :duty AND {duties.IS_TIME} AND NOT ({" OR ".join(PARTS)})
        RETURNING d.duty, set_config('synchronous_commit', 'off', true)
    ), watched AS (
        {observation.GO_ON} WHERE EXISTS (SELECT 1 FROM claimed)
    )
    SELECT EXISTS (SELECT 1 FROM claimed) AS is_over, is_time,
        CASE WHEN NOT EXISTS (SELECT 1 FROM claimed)
             THEN array_remove(ARRAY[{_NAMED}], NULL) END AS to_do
    FROM found
""")


@dataclass(frozen=True, slots=True)
class Tick:
    """How a tick stands.

    Attributes:
        is_over: it was claimed here, and all is done: somebody watched, and nothing is to do.
        is_time: it may begin, as far as can be told; who begins it is told by its claim.
        to_do: the parts of the sweep that found something, by their names in `PARTS`.
    """

    is_over: bool
    is_time: bool
    to_do: frozenset[str]


def begin(
    connection: Connection, duty: str, *, interval_seconds: float, longest_gap: float
) -> Tick:
    """Look whether a tick has anything to do, and claim it and note it as watched if not.

    The whole of a transaction: what becomes due while it looks is found by the next tick.

    Args:
        longest_gap: seconds between two watched ticks that still count as watched.
    """
    found = connection.execute(
        _TICK, {"duty": duty, "interval": interval_seconds, "longest": longest_gap}
    ).one()
    return Tick(found.is_over, found.is_time, frozenset(found.to_do or ()))
