"""What decides at a moment, of what was read: machines, scalers that are held back, usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from sqlalchemy import Connection

from kici_scaler.domain.admission import Restraint, Situation, backoff_restraint
from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.machines import MachineView
from kici_scaler.domain.request import WaitCode
from kici_scaler.domain.scalers import BackendType, Cap, Cluster
from kici_scaler.domain.windows import Windows
from kici_scaler.service import revisions
from kici_scaler.store import machines as machine_rows
from kici_scaler.store import spawns
from kici_scaler.store.scaler_states import ScalerStanding, ScalerStateRow
from kici_scaler.store.surroundings import Surroundings


def of(connection: Connection, revision: revisions.Revision, seen: Surroundings) -> Situation:
    """Everything that decides at this moment, besides the requests and ready agents."""
    live, states = seen.live, seen.states
    views = [_machine_view(row) for row in seen.machines]
    return Situation(
        table=revisions.table_of(connection, revision, _facts_by_scaler(revision.cluster, views)),
        held=spawns.UsageWhenAsked(connection),
        machines=views,
        restraints=_restraints(states, live.windows),
        probes={
            name: max(0, 1 - row.in_flight)
            for name, row in states.items()
            if row.failure_streak > 0 and row.backoff_seconds == 0
        },
        now=live.now,
        ageing=timedelta(seconds=live.windows.ageing_seconds),
        draining=live.draining,
        held_back=live.held_back,
    )


def machines_seen(connection: Connection, windows: Windows) -> list[MachineView]:
    """Every machine as decisions see it."""
    rows = machine_rows.all_machines(connection, fresh_seconds=windows.machine_stale_seconds)
    return [_machine_view(row) for row in rows]


def _machine_view(row: machine_rows.MachineRow) -> MachineView:
    obstacle = None
    if row.state != "up":
        obstacle = f"is {row.state}: {row.note}" if row.note else f"is {row.state}"
    elif not row.is_fresh:
        obstacle = "has not been heard of lately"
    return MachineView(
        id=row.machine_id,
        backend_type=BackendType(row.backend_type),
        facts=MachineFacts(row.os, row.arch) if row.os and row.arch else None,
        serves=None if row.serves is None else frozenset(row.serves),
        obstacle=obstacle,
        pool_obstacle="has its pool filled by another installation" if row.held_back else None,
        degraded=row.degraded,
        is_remote=row.is_remote,
        capacity=Cap(row.cpu_millis or None, row.memory_bytes or None),
    )


def _facts_by_scaler(
    cluster: Cluster, views: Sequence[MachineView]
) -> dict[str, tuple[MachineFacts, ...]]:
    """The kinds of machines each local scaler has, whatever their state."""
    found: dict[str, tuple[MachineFacts, ...]] = {}
    for scaler in cluster.scalers:
        seen = (view.facts_for(scaler) for view in views if view.is_for(scaler))
        kinds = {facts for facts in seen if facts is not None}
        if kinds:
            found[scaler.name] = tuple(
                sorted(kinds, key=lambda each: (each.os, each.arch, sorted(each.labels)))
            )
    return found


def _restraints(states: Mapping[str, ScalerStateRow], windows: Windows) -> dict[str, Restraint]:
    restraints: dict[str, Restraint] = {}
    for name, row in states.items():
        if row.standing in (ScalerStanding.PAUSED, ScalerStanding.RETIRING):
            reason = f"scaler `{name}` is {row.standing}"
            reason = f"{reason}: {row.reason}" if row.reason else reason
            restraints[name] = Restraint(WaitCode.PAUSED, reason, unroutable=True)
        elif row.backoff_seconds > 0:
            restraints[name] = backoff_restraint(
                name, row.backoff_seconds, row.failure_streak, int(windows.failure_limit)
            )
    return restraints
