"""The reserve sequence: the one place where capacity is given out.

Crash table (`kill -9` at ...):
- before COMMIT: nothing happened; the requests still wait, the next pass finds them.
- after COMMIT, before the hints: spawns are reserved and due; the sweep repeats the hint.
- during COMMIT: unknown; the caller reads its own rows back, a repeat finds the job decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from sqlalchemy import Connection

from kici_scaler.checkpoints import reached
from kici_scaler.domain.admission import (
    Admit,
    Bind,
    Deciding,
    Refuse,
    Restraint,
    Situation,
    backoff_restraint,
)
from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.machines import MachineView
from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.scalers import BackendType, Cap, Cluster
from kici_scaler.domain.static_agents import Offer
from kici_scaler.domain.windows import Windows
from kici_scaler.service import (
    counting,
    queues,
    refusing,
    revisions,
    warm_pools,
    warm_serving,
)
from kici_scaler.service.ports import Patience, Place, Step
from kici_scaler.service.reservations import Reservations, reserve
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import machines as machine_rows
from kici_scaler.store import section, spawns, static_jobs, surroundings
from kici_scaler.store.engine import Contended, transaction
from kici_scaler.store.scaler_states import ScalerStanding, ScalerStateRow
from kici_scaler.store.surroundings import Surroundings
from kici_scaler.store.warm import Bound

PASS_SECONDS = 2.0
SHARES = (1, 8, 64)
"""By what the bounds of a pass are divided, each time the one before took too long."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What one admission pass did."""

    admits: tuple[Admit, ...] = ()
    agents: Mapping[str, str] = field(default_factory=dict)
    """The ids of those that were reserved, by job id."""
    bound: tuple[Bound, ...] = ()
    """Jobs that ready agents were given."""
    overtaken: int = 0
    """Jobs whose ready agent somebody else had just taken or ended; they are decided again."""
    refused: int = 0
    stirs_pools: bool = False
    """A warm pool lost an agent, or may have to make room."""
    leaves_more: bool = False
    """More wait than one pass looks at, and this one made room in their queue."""

    @property
    def admitted(self) -> int:
        """How many agents were reserved."""
        return len(self.admits)

    @property
    def places(self) -> frozenset[Place]:
        """Where they are to be started."""
        found = {(each.scaler.type, each.machine_id) for each in self.admits}
        return frozenset(Place(kind.value, machine_id) for kind, machine_id in found)


@dataclass(frozen=True, slots=True)
class Moment:
    """What one pass in the section works on; `deciding` counts what it gives out."""

    connection: Connection
    owner: str
    revision: revisions.Revision
    seen: Surroundings
    situation: Situation
    deciding: Deciding

    @property
    def windows(self) -> Windows:
        """How long things may take."""
        return self.seen.live.windows


@counting.lock_failures()
def run_pass(runtime: Runtime, patience: Patience = Patience.AT_ONCE) -> Pass:
    """Decide what waits.

    Raises:
        Contended: another holder kept the lock too long.
        DatabaseUnreachable: nothing was decided here.
    """
    done = _in_time(runtime, patience)
    reached("admit.committed")
    announce(runtime, done)
    return done


def _in_time(runtime: Runtime, patience: Patience) -> Pass:
    """A pass whose own statements take too long is made again, over less."""
    for share in SHARES:
        entered = False
        try:
            with runtime.mutex.held(patience), transaction(runtime.engine) as connection:
                section.enter(connection, bound_seconds=PASS_SECONDS)
                entered = True
                return decide_and_reserve(connection, runtime.owner, share=share)
        except Contended:
            if not entered or share == SHARES[-1]:
                raise
    raise Contended


def announce(runtime: Runtime, done: Pass) -> None:
    """Hint the gateways that offer a job, and the workers that start what was reserved."""
    if done.bound:
        runtime.hints.offer(done.bound)
    if done.admits:
        runtime.hints.step(Step.START, done.places)
    if done.overtaken or done.leaves_more:
        runtime.hints.admit()
    if done.stirs_pools:
        runtime.hints.fill(soon=True)


def decide_and_reserve(
    connection: Connection, owner: str, job_ids: Sequence[str] = (), *, share: int = 1
) -> Pass:
    """Inside the section: lock waiting requests, count, decide, write. Sends nothing."""
    seen = surroundings.look(connection)
    revision = revisions.active_of(connection, seen)
    batch = queues.lock(connection, revision, job_ids, share=share)
    if not batch.requests:
        return Pass()
    return decide_waiting(moment_of(connection, owner, revision, seen, batch.requests), batch)


def moment_of(
    connection: Connection,
    owner: str,
    revision: revisions.Revision,
    seen: Surroundings,
    waiting: Sequence[Waiting],
) -> Moment:
    """Count everything; ready agents only where somebody waits for one."""
    situation = situation_of(connection, revision, seen)
    if waiting:
        ready = warm_pools.ready(connection, revision, situation, waiting)
        situation = replace(situation, ready=ready, static=seen.static)
    return Moment(connection, owner, revision, seen, situation, Deciding(situation))


def decide_waiting(moment: Moment, batch: queues.Batch) -> Pass:
    """Give out agents and write why the others wait."""
    connection, revision = moment.connection, moment.revision
    decisions = moment.deciding.decide(batch.requests)
    admits = [each for each in decisions if isinstance(each, Admit)]
    binds = [each for each in decisions if isinstance(each, Bind)]
    offers = [each for each in decisions if isinstance(each, Offer)]
    refused = [each for each in decisions if isinstance(each, Refuse)]
    bound = warm_serving.bind(connection, binds, offer_seconds=moment.windows.offer_timeout_seconds)
    if offers:
        bound += static_jobs.bind(
            connection,
            ((each.request.job_id, each.agent_id) for each in offers),
            offer_seconds=moment.windows.offer_timeout_seconds,
        )
    agents = _reserve(moment, admits) if admits else {}
    news = refusing.leave_waiting(connection, refused)
    short_of_room = any(each.code is WaitCode.AT_CAPACITY for each in news)
    reached("admit.reserved")
    return Pass(
        admits=tuple(admits),
        agents=agents,
        bound=tuple(bound),
        overtaken=len(binds) + len(offers) - len(bound),
        refused=len(refused),
        stirs_pools=bool(bound) or (short_of_room and warm_pools.keeps_any(revision.cluster)),
        leaves_more=batch.leaves_more(decisions),
    )


def _reserve(moment: Moment, admits: Sequence[Admit]) -> dict[str, str]:
    connection, windows = moment.connection, moment.windows
    rows = Reservations(
        moment.situation, moment.revision.id, moment.owner, windows, moment.seen.live.spawn_timeouts
    )
    reserved = reserve(
        connection,
        [
            rows.row(each.scaler, each.label_set, each.machine_id, each.shape, each.request)
            for each in admits
        ],
        hint_after=windows.hint_after_seconds,
    )
    warm_serving.count_misses(connection, moment.revision.cluster, admits)
    return {row.job_id: row.agent_id for row in reserved if row.job_id is not None}


def situation_of(
    connection: Connection, revision: revisions.Revision, seen: Surroundings
) -> Situation:
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
