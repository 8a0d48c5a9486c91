"""What follows when a spawn goes towards its end, whoever decided it, in one transaction.

Whoever's update moves the row owns the consequences: the outcome, the tokens' end, the
job's next state, the scaler's failure. So each is counted once, however many saw it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from kici_scaler.domain.request import RequestState
from kici_scaler.domain.scalers import BackendType
from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.domain.windows import Windows
from kici_scaler.metrics import declared
from kici_scaler.service import teardown
from kici_scaler.service.ports import Place, Step
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import (
    agents,
    counts,
    endings,
    events,
    request_ends,
    scaler_states,
    warm_books,
)
from kici_scaler.store.counts import Count
from kici_scaler.store.endings import Ended
from kici_scaler.store.events import EventType, NewEvent

S = SpawnState
BEFORE_ACCEPTED = frozenset({S.RESERVED, S.SPAWNING, S.BOOTING, S.IDLE})
ANY_LIVE = frozenset({*BEFORE_ACCEPTED, S.BUSY})
_EXISTS = frozenset({S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY})


@dataclass(frozen=True, slots=True)
class Effects:
    """What should be hinted once the transaction is committed; nothing for who cannot act."""

    destroys: frozenset[Place] = frozenset()
    gateways: tuple[tuple[str, str], ...] = ()
    capacity_freed: bool = False
    requests_waiting: bool = False
    ended: tuple[str, ...] = field(default=())


def end(
    connection: Connection,
    agent_ids: Sequence[str],
    *,
    states: Collection[SpawnState],
    reason: DestroyReason,
    why: str,
    windows: Windows,
    failed: bool = False,
    counts_against_scaler: bool = False,
    log_tail: Sequence[str] = (),
    job_is_over: bool = False,
) -> Effects:
    """End spawns that are in one of `states`, with every consequence.

    Args:
        why: the sentence that becomes the job's error and stands on the outcome.
        failed: the provision itself failed (an event of its own, marked on the outcome).
        counts_against_scaler: one failure and one backoff step for its scaler; never for
            what the job brought on itself.
        job_is_over: its request has its end already; there is none to part with.
    """
    withdrawn = endings.withdraw(connection, agent_ids) if S.RESERVED in states else []
    begun = endings.begin(
        connection,
        agent_ids,
        states=[state for state in states if state in _EXISTS],
        reason=reason,
        why=why,
        quarantine_seconds=windows.quarantine_after_seconds,
        machine_stale_seconds=windows.machine_stale_seconds,
        failed=failed,
        log_tail=log_tail,
    )
    if not (ended := [*withdrawn, *begun]):
        return Effects()
    _tear_down_provisions(connection, begun, reason, windows)
    requeued = not job_is_over and _part_with_jobs(connection, ended, why)
    if failed:
        _tell_of_failure(connection, ended, reason, why)
    if counts_against_scaler:
        _count_failures(connection, ended, windows)
    return Effects(
        destroys=frozenset(Place(e.backend_type, e.machine_id) for e in begun if e.is_reachable),
        gateways=tuple((e.gateway, e.agent_id) for e in begun if e.gateway is not None),
        capacity_freed=bool(withdrawn),
        requests_waiting=requeued,
        ended=tuple(each.agent_id for each in ended),
    )


def _tell_of_failure(
    connection: Connection, ended: Sequence[Ended], reason: DestroyReason, why: str
) -> None:
    events.record(
        connection,
        [NewEvent(EventType.FAILED, e.agent_id, e.job_id, e.run_id, why) for e in ended],
    )
    failures = [
        Count(declared.SPAWN_FAILURES, (e.backend_type, str(e.job_id is not None).lower()))
        for e in ended
    ]
    timeouts = [
        Count(declared.PROVISION_TIMEOUTS, (e.scaler,))
        for e in ended
        if e.backend_type == BackendType.EVENT and reason is DestroyReason.SPAWN_TIMEOUT
    ]
    counts.add(connection, [*failures, *timeouts])


def _count_failures(connection: Connection, ended: Sequence[Ended], windows: Windows) -> None:
    scaler_states.count_failures(
        connection,
        [each.scaler for each in ended],
        base_seconds=windows.backoff_base_seconds,
        max_seconds=windows.backoff_max_seconds,
    )


def _tear_down_provisions(
    connection: Connection, begun: Sequence[Ended], reason: DestroyReason, windows: Windows
) -> None:
    """Whoever made the provisions among them takes those away."""
    ids = [each.agent_id for each in begun if each.backend_type == BackendType.EVENT]
    if ids:
        teardown.begin(connection, ids, reason=reason, windows=windows)


def give_back_reserved(
    connection: Connection,
    *,
    why: str,
    machine_id: str | None = None,
    stale_seconds: float = 0.0,
) -> Effects:
    """Withdraw reservations that nothing will start; their jobs wait again, uncounted."""
    agent_ids = endings.reserved_where_nothing_starts(
        connection, machine_id=machine_id, stale_seconds=stale_seconds
    )
    return give_back(connection, agent_ids, why=why)


def give_back(connection: Connection, agent_ids: Sequence[str], *, why: str) -> Effects:
    """Withdraw these reservations; their jobs wait again, and it counts against nobody."""
    if not agent_ids:
        return Effects()
    withdrawn = endings.withdraw(connection, agent_ids)
    jobs = [each.job_id for each in withdrawn if each.job_id is not None]
    released = request_ends.release(connection, jobs, why=f"waits again: {why}") if jobs else []
    return Effects(
        capacity_freed=bool(withdrawn),
        requests_waiting=bool(released),
        ended=tuple(each.agent_id for each in withdrawn),
    )


def _part_with_jobs(connection: Connection, ended: Sequence[Ended], why: str) -> bool:
    """Requeue or fail the jobs of ended spawns; whether any waits again."""
    jobs = [each.job_id for each in ended if each.job_id is not None]
    if not jobs:
        return False
    offered = [each.agent_id for each in ended if each.was is S.IDLE and each.job_id is not None]
    if offered:
        warm_books.count_lost(connection, offered)
    bereaved = request_ends.bereave(connection, jobs, cause=why)
    agent_of = {each.job_id: each.agent_id for each in ended}
    events.record(
        connection,
        [
            NewEvent(
                EventType.REQUEST_REQUEUED
                if each.state is RequestState.WAITING
                else EventType.REQUEST_FINISHED,
                agent_of[each.job_id],
                each.job_id,
                each.run_id,
                f"{each.state}: {why}",
            )
            for each in bereaved
        ],
    )
    return any(each.state is RequestState.WAITING for each in bereaved)


def tell(connection: Connection, agent_id: str) -> Effects:
    """Something changed that a connected agent should hear of."""
    gateway = agents.gateway_of(connection, agent_id)
    return Effects(gateways=() if gateway is None else ((gateway, agent_id),))


def announce(runtime: Runtime, effects: Effects) -> None:
    """Send the hints of committed effects."""
    if effects.gateways:
        runtime.hints.wake_gateways(effects.gateways)
    if effects.destroys:
        runtime.hints.step(Step.DESTROY, effects.destroys)
    if effects.capacity_freed or effects.requests_waiting:
        runtime.hints.admit(soon=True)
