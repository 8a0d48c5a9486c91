"""One try of one delivery: take, tell the target, apply what came of it.

Crash table (`kill -9` at ...):
- after take, before or during act: the lease runs out; the try counts as one that may have
  been acted on, and the same event is sent again.
- after act, before apply: likewise; the target sees an event that it knows.
- after apply: it is closed, or due by itself.
A worker that lost its lease meanwhile finds no row under its token and changes nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from dataclasses import dataclass, field

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from kici_scaler.checkpoints import reached
from kici_scaler.domain import delivery
from kici_scaler.domain.delivery import Acted, Again, Attempt, DeliveryKind, DeliveryState
from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.domain.windows import Windows
from kici_scaler.service import ending, settle
from kici_scaler.service.ports import Place, Step
from kici_scaler.service.provision import KIND
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import (
    claims,
    deliveries,
    delivery_tries,
    observation,
    provisions,
    settings,
    start_takes,
    teardowns,
)
from kici_scaler.store.deliveries import TakenDelivery
from kici_scaler.store.delivery_tries import Owner, Tried
from kici_scaler.store.engine import transaction

log = structlog.get_logger(__name__)

EVERYWHERE = Place(KIND, None)
STEPS = {DeliveryKind.SCALE_UP: Step.START, DeliveryKind.SCALE_DOWN: Step.DESTROY}
SHARE_OF_LEASE = 0.8
"""How much of its lease a try may use; the rest is for writing down what came of it."""
MOST_LAPSED = 50
DIED = Attempt(Acted.PERHAPS, "the worker that tried it was not heard of again")


@dataclass(frozen=True, slots=True)
class DeliveryOrder:
    """A taken delivery, and when telling its target must be over.

    `give_up_at` is of this process's monotonic clock, and before its lease ends: one that was
    frozen meanwhile tells nobody anything any more.
    """

    row: TakenDelivery
    give_up_at: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """What followed a try."""

    state: DeliveryState
    ended: tuple[str, ...] = ()
    """Provisions that failed for it."""


@dataclass(slots=True)
class _After:
    """What is to be hinted once the try's transaction is committed."""

    effects: list[ending.Effects] = field(default_factory=list)
    looks: list[settle.Looked] = field(default_factory=list)
    steps: set[Step] = field(default_factory=set)


def take(
    runtime: Runtime, kind: DeliveryKind, *, most: int, per_target: int
) -> tuple[list[DeliveryOrder], bool]:
    """Take up to `most` deliveries, at most `per_target` of a target; whether some were left.

    Raises:
        DatabaseUnreachable: nothing was taken for certain; what was is tried again later.
    """
    _apply_lapsed(runtime, kind)
    began = time.monotonic()
    with transaction(runtime.engine) as connection:
        windows = settings.windows(connection)
        rows = deliveries.take(
            connection,
            kind,
            holder=runtime.owner,
            most=most,
            per_target=per_target,
            lease_seconds=windows.lease_seconds,
        )
        left_some = deliveries.any_ready(connection, kind)
    seconds = min(windows.delivery_timeout_seconds, windows.lease_seconds * SHARE_OF_LEASE)
    return [DeliveryOrder(row, began + seconds) for row in rows], left_some


def record(runtime: Runtime, order: DeliveryOrder, attempt: Attempt) -> Recorded | None:
    """Apply what a try came to; None when its lease was lost meanwhile.

    Raises:
        DatabaseUnreachable: repeat while the lease lasts; then it counts as unknown.
    """
    return _record(runtime, order.row.id, order.row.token, order.row.agent_id, attempt)


def look_for_due(connection: Connection, windows: Windows, *, most: int) -> frozenset[Step]:
    """The steps of deliveries that somebody should be reminded of."""
    kinds = deliveries.due(connection, most=most, first_pause=windows.hint_after_seconds)
    return frozenset(STEPS[kind] for kind in kinds)


def remind(runtime: Runtime, steps: Collection[Step]) -> None:
    """Hint the workers that deliver events."""
    for step in steps:
        runtime.hints.step(step, [EVERYWHERE])


def _apply_lapsed(runtime: Runtime, kind: DeliveryKind) -> None:
    with transaction(runtime.engine) as connection:
        lapsed = delivery_tries.lapsed(connection, kind, most=MOST_LAPSED)
    for row in lapsed:
        try:
            _record(runtime, row.id, row.token, row.agent_id, DIED)
        except DBAPIError:  # one that cannot be applied must not stop the others
            log.exception("lapsed try could not be applied", agent_id=row.agent_id)


def _record(
    runtime: Runtime, delivery_id: int, token: int, agent_id: str, attempt: Attempt
) -> Recorded | None:
    after = _After()
    with transaction(runtime.engine) as connection:
        owner = delivery_tries.lock_owner(connection, agent_id)
        tried = delivery_tries.end_attempt(
            connection, delivery_id=delivery_id, token=token, attempt=attempt
        )
        if tried is None:
            return None
        windows = settings.windows(connection)
        if tried.kind is DeliveryKind.SCALE_UP:
            state = _after_scale_up(connection, owner, tried, attempt, windows, after)
        else:
            state = _after_scale_down(connection, tried, attempt, after)
    reached("deliver.applied")
    for effects in after.effects:
        ending.announce(runtime, effects)
    for looked in after.looks:
        settle.announce(runtime, looked)
    remind(runtime, after.steps)
    return Recorded(state, tuple(each for effects in after.effects for each in effects.ended))


def _after_scale_up(
    connection: Connection,
    owner: Owner | None,
    tried: Tried,
    attempt: Attempt,
    windows: Windows,
    after: _After,
) -> DeliveryState:
    if attempt.acted is Acted.YES:
        delivery_tries.count(connection, tried.scaler, tried.kind, None)
    seconds_left = None if owner is None else owner.seconds_left
    if attempt.acted is not Acted.NO:
        booted = reached_somebody(connection, tried, windows)
        seconds_left = booted if booted is not None else seconds_left
        if booted is not None and start_takes.any_reserved(connection, kind=KIND, machine_id=None):
            after.steps.add(Step.START)
    if tried.state is not DeliveryState.PENDING:
        return _after_called_off(connection, tried, attempt, after)
    if not observation.is_watching(connection):
        seconds_left = None
    state = _continue(connection, tried, attempt, seconds_left)
    if state is DeliveryState.NOT_DONE and owner is not None:
        after.effects.append(_fail_if_nobody(connection, owner, tried, windows))
    return state


def reached_somebody(connection: Connection, tried: Tried, windows: Windows) -> float | None:
    """A target may have acted: the code's time and the time to register run from that try.

    The seconds left to register, when this was the first such try; else None.
    """
    if tried.code_until is not None:
        claims.begin_time(connection, tried.agent_id, tried.code_until)
    return provisions.boot(
        connection,
        tried.agent_id,
        since=tried.attempted_at,
        boot_floor_seconds=windows.boot_floor_seconds,
    )


def _after_called_off(
    connection: Connection, tried: Tried, attempt: Attempt, after: _After
) -> DeliveryState:
    """It was closed while it was on its way: correct what was not known then."""
    if attempt.acted is Acted.YES:
        delivery_tries.close(connection, tried.id, DeliveryState.DONE)
        return DeliveryState.DONE
    if tried.may_have_acted or tried.state is not DeliveryState.UNKNOWN:
        return tried.state
    delivery_tries.close(connection, tried.id, DeliveryState.NOT_DONE)
    teardowns.withdraw_scale_down(connection, tried.agent_id, tried.target)
    after.looks.append(settle.look(connection, tried.agent_id))
    return DeliveryState.NOT_DONE


def _after_scale_down(
    connection: Connection, tried: Tried, attempt: Attempt, after: _After
) -> DeliveryState:
    if tried.state is not DeliveryState.PENDING:
        return tried.state
    state = _continue(connection, tried, attempt, None)
    if state is DeliveryState.DONE:
        delivery_tries.count(connection, tried.scaler, tried.kind, tried.reason)
        after.looks.append(settle.look(connection, tried.agent_id))
    return state


def _continue(
    connection: Connection, tried: Tried, attempt: Attempt, seconds_left: float | None
) -> DeliveryState:
    """Close it, or leave it for another try."""
    verdict = delivery.after_attempt(
        tried.kind,
        attempt,
        attempts=tried.attempts,
        may_have_acted=tried.may_have_acted,
        seconds_left=seconds_left,
        chance=random.random(),
    )
    if isinstance(verdict, Again):
        delivery_tries.try_again(connection, tried.id, pause_seconds=verdict.seconds)
        return DeliveryState.PENDING
    given_up = verdict.state is not DeliveryState.DONE
    delivery_tries.close(connection, tried.id, verdict.state, dead_letter=given_up)
    return verdict.state


def _fail_if_nobody(
    connection: Connection, owner: Owner, tried: Tried, windows: Windows
) -> ending.Effects:
    """When every target is certain not to have acted, the provision fails at once."""
    states = delivery_tries.states_of(connection, tried.agent_id, DeliveryKind.SCALE_UP)
    if owner.state is not SpawnState.SPAWNING or not delivery.reached_nobody(states):
        return ending.Effects()
    failures = delivery_tries.failures_of(connection, tried.agent_id)
    told = "; ".join(f"{target}: {why} (tried {tries} times)" for target, why, tries in failures)
    return ending.end(
        connection,
        [tried.agent_id],
        states=(SpawnState.SPAWNING,),
        reason=DestroyReason.SPAWN_TIMEOUT,
        why=f"its scale-up reached nobody: {told}",
        windows=windows,
        failed=True,
        counts_against_scaler=True,
    )
