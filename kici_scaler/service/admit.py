"""The reserve sequence: the one place where capacity is given out.

Crash table (`kill -9` at ...):
- before COMMIT: nothing happened; the requests still wait, the next pass finds them.
- after COMMIT, before the hints: spawns are reserved and due; the sweep repeats the hint.
- during COMMIT: unknown; the caller reads its own rows back, a repeat finds the job decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from kici_scaler.checkpoints import reached
from kici_scaler.domain.admission import (
    Admit,
    Decision,
    MachineView,
    Refuse,
    Restraint,
    Situation,
    backoff_restraint,
    decide,
)
from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.scalers import BackendType, Cluster
from kici_scaler.domain.windows import Windows
from kici_scaler.service import revisions
from kici_scaler.service.ports import Place, Step
from kici_scaler.service.reservations import Reservations, reserve
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import machines as machine_rows
from kici_scaler.store import requests as request_rows
from kici_scaler.store import scaler_states, section, settings, spawns
from kici_scaler.store.bulk import sql
from kici_scaler.store.engine import transaction
from kici_scaler.store.scaler_states import ScalerStanding

PASS_SECONDS = 2.0
PER_SCALER = 500


@dataclass(frozen=True, slots=True)
class Pass:
    """What one admission pass did."""

    admitted: int
    refused: int
    places: frozenset[Place]


def run_pass(runtime: Runtime) -> Pass:
    """Decide what waits.

    Raises:
        Contended: another holder kept the lock too long.
        DatabaseUnreachable: nothing was decided here.
    """
    with runtime.mutex.held(), transaction(runtime.engine) as connection:
        section.bound_waits(connection, PASS_SECONDS)
        section.enter(connection)
        done = decide_and_reserve(connection, runtime.owner)
    reached("admit.committed")
    announce(runtime, done)
    return done


def announce(runtime: Runtime, done: Pass) -> None:
    """Hint the workers that can start what was reserved."""
    if done.places:
        runtime.hints.step(Step.START, done.places)


def decide_and_reserve(connection: Connection, owner: str, job_ids: Sequence[str] = ()) -> Pass:
    """Inside the section: lock waiting requests, count, decide, write. Sends nothing."""
    revision = revisions.active(connection)
    names = [scaler.name for scaler in revision.cluster.scalers]
    waiting = request_rows.lock_waiting(
        connection, job_ids=job_ids, scalers=["", *names], per_scaler=PER_SCALER
    )
    if not waiting:
        return Pass(0, 0, frozenset())
    windows = settings.windows(connection)
    situation = situation_of(connection, revision, windows)
    decisions = decide(waiting, situation)
    admitted = [each for each in decisions if isinstance(each, Admit)]
    refused = [each for each in decisions if isinstance(each, Refuse)]
    if admitted:
        rows = Reservations(
            situation, revision.id, owner, windows, settings.spawn_timeouts(connection)
        )
        reserve(
            connection,
            [
                rows.row(each.scaler, each.label_set, each.machine_id, each.shape, each.request)
                for each in admitted
            ],
            hint_after=windows.hint_after_seconds,
        )
        request_rows.assign(
            connection, ((each.request.job_id, each.scaler.name) for each in admitted)
        )
    _write_reasons(connection, refused)
    reached("admit.reserved")
    return Pass(len(admitted), len(refused), _places(admitted))


def situation_of(
    connection: Connection, revision: revisions.Revision, windows: Windows
) -> Situation:
    """Everything that decides at this moment, besides the requests."""
    rows = machine_rows.all_machines(connection, fresh_seconds=windows.machine_stale_seconds)
    views = [_machine_view(row) for row in rows]
    now: datetime = connection.execute(sql("SELECT clock_timestamp()")).scalar_one()
    return Situation(
        table=revisions.table_of(revision, _facts_by_scaler(revision.cluster, views)),
        held=spawns.usage(connection),
        machines=views,
        restraints=_restraints(connection, windows),
        now=now,
        ageing=timedelta(seconds=windows.ageing_seconds),
        draining=settings.is_draining(connection),
    )


def _machine_view(row: machine_rows.MachineRow) -> MachineView:
    obstacle = None
    if row.state != "up":
        obstacle = f"is {row.state}"
    elif not row.is_fresh:
        obstacle = "has not been heard of lately"
    return MachineView(
        id=row.machine_id,
        backend_type=BackendType(row.backend_type),
        facts=MachineFacts(row.os, row.arch) if row.os and row.arch else None,
        serves=None if row.serves is None else frozenset(row.serves),
        obstacle=obstacle,
        pool_obstacle="has its pool filled by another installation" if row.held_back else None,
    )


def _facts_by_scaler(
    cluster: Cluster, views: Sequence[MachineView]
) -> dict[str, tuple[MachineFacts, ...]]:
    """The kinds of machines each local scaler has, whatever their state."""
    found: dict[str, tuple[MachineFacts, ...]] = {}
    for scaler in cluster.scalers:
        kinds = {
            view.facts
            for view in views
            if view.facts is not None
            and view.backend_type is scaler.type
            and (view.serves is None or scaler.name in view.serves)
        }
        if kinds:
            found[scaler.name] = tuple(sorted(kinds, key=lambda each: (each.os, each.arch)))
    return found


def _restraints(connection: Connection, windows: Windows) -> dict[str, Restraint]:
    restraints: dict[str, Restraint] = {}
    for name, row in scaler_states.all_states(connection).items():
        if row.standing in (ScalerStanding.PAUSED, ScalerStanding.RETIRING):
            reason = f"scaler `{name}` is {row.standing}"
            reason = f"{reason}: {row.reason}" if row.reason else reason
            restraints[name] = Restraint(WaitCode.PAUSED, reason, unroutable=True)
        elif row.backoff_seconds > 0:
            restraints[name] = backoff_restraint(
                name, row.backoff_seconds, row.failure_streak, int(windows.failure_limit)
            )
    return restraints


def _write_reasons(connection: Connection, refused: Sequence[Refuse]) -> None:
    """Only what changed is written, so a long queue costs nothing while nothing changes."""
    standings = [
        request_rows.Standing(
            each.request.job_id,
            each.code,
            each.reason,
            each.scaler,
            over=not each.request.may_wait,
        )
        for each in refused
        if not each.request.may_wait or _differs(each, each.request)
    ]
    if standings:
        request_rows.record_reasons(connection, standings)


def _differs(refuse: Refuse, request: Waiting) -> bool:
    return (refuse.code, refuse.reason, refuse.scaler) != (
        request.wait_code,
        request.wait_reason,
        request.routed_scaler,
    )


def _places(admitted: Sequence[Decision]) -> frozenset[Place]:
    return frozenset(
        Place(each.scaler.type.value, each.machine_id)
        for each in admitted
        if isinstance(each, Admit)
    )
