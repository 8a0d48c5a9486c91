"""What every decision looks at besides requests and scalers' agents, in one round trip.

Each part is some rows, few of which change; read one by one they cost a decision more than the
decision itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.engine import Row

from kici_scaler.domain.static_agents import StaticAgent
from kici_scaler.store import machines, scaler_states, settings, static_agents
from kici_scaler.store.bulk import rows_as_json, sql
from kici_scaler.store.machines import MachineRow
from kici_scaler.store.scaler_states import ScalerStateRow
from kici_scaler.store.settings import Live


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All of one moment."""

    revision_id: int | None
    """Of the active configuration; None before the first."""
    live: Live
    machines: Sequence[MachineRow]
    states: Mapping[str, ScalerStateRow]
    static: Sequence[StaticAgent]
    """Those no scaler made and a living gateway sees, the longest here first."""


LOOK = f"""
    SELECT (SELECT id FROM config_revisions WHERE active) AS revision_id,
           {rows_as_json(machines.SELECT)} AS machines,
           {rows_as_json(scaler_states.SELECT)} AS states,
           {rows_as_json(static_agents.PRESENT)} AS static,
           live.*
    FROM ({settings.LIVE}) AS live
"""
"""One row, as `parsed` takes it."""


def look(connection: Connection) -> Surroundings:
    """Read all of it."""
    return parsed(connection.execute(sql(LOOK)).one())


def parsed(row: Row[Any]) -> Surroundings:
    """All of it from that row."""
    live = settings.parsed(row._asdict())
    fresh = live.windows.machine_stale_seconds
    return Surroundings(
        revision_id=row.revision_id,
        live=live,
        machines=[machines.parsed(each, fresh_seconds=fresh) for each in row.machines],
        states={each["scaler"]: scaler_states.parsed(each) for each in row.states},
        static=[static_agents.parsed(each) for each in row.static],
    )
