"""The sweep: looks at what is due, hints whoever can act, ends what is over.

A tick that finds nothing to do is one statement. One that finds anything is a transaction, with
its claim in it, so that no tick is ever claimed without its work.

Crash table (`kill -9` at ...):
- before or after the statement of a tick that found nothing: there is nothing to lose.
- after the statement of one that found something: it wrote nothing; the tick is still free.
- before COMMIT: nothing happened; the rows are due for the next sweep.
- after COMMIT, before the hints: the rows are due again after one pause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from kici_scaler import metrics
from kici_scaler.checkpoints import reached
from kici_scaler.domain.judgement import Condemn, Due, Judgement, Look, Verdict, brake, judge
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.domain.windows import Windows
from kici_scaler.service import deliver, ending, failover, patience, static_agents, watch
from kici_scaler.service.ports import Place, Step
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import (
    claims,
    duties,
    endings,
    gateways,
    machines,
    observation,
    requests,
    settings,
    static_jobs,
    ticks,
)
from kici_scaler.store import due as due_rows
from kici_scaler.store.due import DueRow
from kici_scaler.store.engine import is_disconnect, transaction
from kici_scaler.store.observation import LONGEST_GAP_SECONDS, Observation
from kici_scaler.store.single import one_statement

log = structlog.get_logger(__name__)

DUTY = watch.SWEEP
INTERVAL_SECONDS = 1.0
BATCH = 500
_STEPS = {Look.START: Step.START, Look.DESTROY: Step.DESTROY}


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep found."""

    looked_at: int = 0
    ended: int = 0
    quarantined: int = 0
    owned_tick: bool = True


def sweep(runtime: Runtime) -> Swept:
    """One tick; any number of callers may fire it, one does the work.

    Raises:
        DatabaseUnreachable: nothing was judged.
    """
    with one_statement(runtime.engine) as connection:
        tick = ticks.begin(
            connection, DUTY, interval_seconds=INTERVAL_SECONDS, longest_gap=LONGEST_GAP_SECONDS
        )
    reached("sweep.looked")
    if tick.is_over:
        return Swept()
    return _sweep(runtime) if tick.is_time else Swept(owned_tick=False)


def _sweep(runtime: Runtime) -> Swept:
    """A tick that has something to do, or has never been."""
    with transaction(runtime.engine) as connection:
        gap = duties.seconds_since(connection, DUTY)
        if not duties.claim_tick(connection, DUTY, interval_seconds=INTERVAL_SECONDS):
            return Swept(owned_tick=False)
        windows = settings.windows(connection)
        goes_on = failover.look(connection)
        if gap is not None and gap <= windows.gateway_stale_seconds:
            gateways.declare_dead(connection, stale_seconds=windows.gateway_stale_seconds)
        gateways.forsake(connection)
        machines.mark_unreachable(connection, silent_seconds=windows.machine_stale_seconds)
        seen = _observe(connection, gap, windows)
        rows = _pick(connection, windows)
        reached("sweep.picked")
        owed = deliver.look_for_due(connection, windows, most=BATCH)
        waiting = requests.any_waiting(connection)
        verdicts = _judged(connection, rows, windows, seen)
        effects, quarantined = _carry_out(connection, verdicts, windows)
        static = static_agents.look_after(connection, windows, seen, most=BATCH)
        effects += static.effects
        if any(row.due.state is SpawnState.RESERVED for row in rows):
            effects.append(
                ending.give_back_reserved(
                    connection,
                    why="its machine starts nothing at the moment",
                    stale_seconds=windows.machine_stale_seconds,
                )
            )
    reached("sweep.committed")
    for each in effects:
        ending.announce(runtime, each)
    _hint(runtime, verdicts)
    if static.told:
        runtime.hints.wake_gateways(static.told)
    deliver.remind(runtime, owed)
    if waiting:
        runtime.hints.admit()
    if goes_on:
        runtime.hints.fill()
    ended = sum(len(each.ended) for each in effects)
    return Swept(len(rows) + static.looked_at, ended, quarantined)


def _judged(
    connection: Connection, rows: list[DueRow], windows: Windows, seen: Observation
) -> list[tuple[DueRow, Judgement]]:
    patient = patience.windows_for(connection, (row.due for row in rows), windows)
    verdicts = [
        (row, judge(row.due, patient, observing=seen.watching, in_grace=seen.in_grace))
        for row in rows
    ]
    return _brake(connection, verdicts, windows)


def _pick(connection: Connection, windows: Windows) -> list[DueRow]:
    return due_rows.pick(
        connection,
        most=BATCH,
        first_pause=windows.hint_after_seconds,
        machine_stale_seconds=windows.machine_stale_seconds,
    )


def _observe(connection: Connection, gap: float | None, windows: Windows) -> Observation:
    """Whether what is unseen could have been seen; an unwatched time moves every clock."""
    fresh = gateways.any_fresh(connection, fresh_seconds=windows.gateway_stale_seconds)
    if not fresh:
        watch.alarm(connection, windows)
    unbroken = gap is None or gap <= LONGEST_GAP_SECONDS
    seen = observation.note(
        connection,
        watching=fresh,
        longest_gap=LONGEST_GAP_SECONDS,
        grace_seconds=windows.flap_grace_seconds,
    )
    if seen.gap_seconds > 0:
        shifted = observation.shift_clocks(connection, seen.gap_seconds)
        claims.shift(connection, seen.gap_seconds)
        static_jobs.shift_clocks(connection, seen.gap_seconds)
        log.warning(
            "nobody watched for a while; every deadline was moved",
            seconds=int(seen.gap_seconds),
            spawns=shifted,
        )
    return seen if unbroken else replace(seen, watching=False)


def _brake(
    connection: Connection, verdicts: list[tuple[DueRow, Judgement]], windows: Windows
) -> list[tuple[DueRow, Judgement]]:
    """Withhold condemnations for absence from scalers most of whose agents are absent."""
    scalers = {
        row.due.scaler
        for row, verdict in verdicts
        if isinstance(verdict, Condemn) and verdict.for_absence
    }
    if not scalers:
        return verdicts
    attendance = observation.attendance(connection, sorted(scalers))
    braked = {
        scaler
        for scaler, each in attendance.items()
        if brake(each.registered, each.absent, windows)
    }
    for scaler in sorted(braked):
        metrics.count(metrics.declared.ABSENCE_BRAKE, scaler)
        log.error(
            "too many agents absent at once; none is condemned",
            scaler=scaler,
            absent=attendance[scaler].absent,
            registered=attendance[scaler].registered,
        )
    return [
        (row, Look.NOBODY)
        if isinstance(verdict, Condemn) and verdict.for_absence and row.due.scaler in braked
        else (row, verdict)
        for row, verdict in verdicts
    ]


def _carry_out(
    connection: Connection, verdicts: Sequence[tuple[DueRow, Judgement]], windows: Windows
) -> tuple[list[ending.Effects], int]:
    effects: list[ending.Effects] = []
    for row, verdict in verdicts:
        if isinstance(verdict, Condemn):
            effects.append(_condemn_alone(connection, row.due, verdict, windows))
    overdue = [row.due.agent_id for row, verdict in verdicts if verdict is Verdict.QUARANTINE]
    quarantined = endings.quarantine(connection, overdue) if overdue else []
    for agent_id in quarantined:
        log.error("spawn quarantined", agent_id=agent_id, hint="see `kici-scaler agents show`")
    return effects, len(quarantined)


def _condemn_alone(
    connection: Connection, due: Due, verdict: Condemn, windows: Windows
) -> ending.Effects:
    """In a savepoint of its own: a row that cannot be ended must not stop the others."""
    try:
        with connection.begin_nested():
            return ending.end(
                connection,
                [due.agent_id],
                states=(due.state,),
                reason=verdict.reason,
                why=verdict.why,
                windows=windows,
                failed=verdict.provision_failed,
                counts_against_scaler=verdict.provision_failed,
            )
    except DBAPIError as error:
        if is_disconnect(error):
            raise
        log.exception("spawn could not be ended", agent_id=due.agent_id)
        return ending.Effects()


def _hint(runtime: Runtime, verdicts: Sequence[tuple[DueRow, Judgement]]) -> None:
    for look, step in _STEPS.items():
        places = {_place(row.due) for row, verdict in verdicts if verdict is look}
        if places:
            runtime.hints.step(step, places)
    inspected: dict[Place, list[str]] = {}
    for row, verdict in verdicts:
        if verdict is Look.INSPECT:
            inspected.setdefault(_place(row.due), []).append(row.due.agent_id)
    for place, agent_ids in inspected.items():
        runtime.hints.inspect(place, agent_ids)
    told = [
        (row.gateway, row.due.agent_id)
        for row, verdict in verdicts
        if verdict is Look.GATEWAY and row.gateway is not None
    ]
    if told:
        runtime.hints.wake_gateways(told)


def _place(due: Due) -> Place:
    return Place(due.backend_type, due.machine_id)
