"""The reserve sequence: the one place where capacity is given out.

Crash table (`kill -9` at ...):
- before COMMIT: nothing happened; the requests still wait, the next pass finds them.
- after COMMIT, before the hints: spawns are reserved and due; the sweep repeats the hint.
- during COMMIT: unknown; the caller reads its own rows back, a repeat finds the job decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from kici_scaler.checkpoints import reached
from kici_scaler.domain.admission import (
    Admit,
    Bind,
    Deciding,
    Refuse,
    Situation,
)
from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.static_agents import Offer
from kici_scaler.domain.windows import Windows
from kici_scaler.service import (
    counting,
    queues,
    refusing,
    revisions,
    situations,
    warm_pools,
    warm_serving,
)
from kici_scaler.service.ports import Patience, Place, Step
from kici_scaler.service.reservations import Reservations, reserve
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import section, static_jobs, surroundings
from kici_scaler.store.engine import Contended, transaction
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
def run_pass(runtime: Runtime) -> Pass:
    """Decide what waits.

    Raises:
        Contended: another holder kept the lock too long.
        DatabaseUnreachable: nothing was decided here.
    """
    with runtime.mutex.held():
        done = _in_time(runtime)
    announce(runtime, done)
    return done


@counting.lock_failures()
def run_left(runtime: Runtime) -> Pass | None:
    """The same once the section has rested; None while it does: more is left, and a pass follows.

    Raises:
        Contended, DatabaseUnreachable: as `run_pass`.
    """
    with runtime.mutex.held(Patience.COLLECTING) as turn:
        done = None if turn.rests_for else _in_time(runtime)
    if done is None:
        runtime.hints.admit_left(turn)
        return None
    announce(runtime, done)
    return done


def _in_time(runtime: Runtime) -> Pass:
    """A pass whose own statements take too long is made again, over less."""
    for share in SHARES:
        entered = False
        try:
            with transaction(runtime.engine) as connection:
                section.enter(connection, bound_seconds=PASS_SECONDS)
                entered = True
                done = decide_and_reserve(connection, runtime.owner, share=share)
        except Contended:
            if not entered or share == SHARES[-1]:
                raise
        else:
            reached("admit.committed")
            return done
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
    situation = situations.of(connection, revision, seen)
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
