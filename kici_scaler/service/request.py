"""Scale requests come in, are decided at once where that is possible, and are called off.

Crash table (`kill -9` at ...):
- before the first COMMIT: nothing was stored; the caller had no answer and repeats.
- after it, before the decision: the request waits; the next pass or the sweep decides it.
- after the decision: see the reserve sequence; a repeat of the request finds it decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.checkpoints import reached
from kici_scaler.domain.request import RequestState, Result, WaitCode, cause_of
from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.service import admit, counting, ending, serve_ready, static_agents
from kici_scaler.service.ports import Patience
from kici_scaler.service.request_body import ScaleRequestBody
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.serve_ready import Served
from kici_scaler.store import audit, request_ends, section, settings, static_jobs
from kici_scaler.store import requests as request_rows
from kici_scaler.store.engine import CommitUnknown, DatabaseUnreachable, transaction
from kici_scaler.store.requests import NewRequest, RequestRow
from kici_scaler.store.section import Contended

SHARE = 4
"""By what the bounds of a pass are divided here, so that who asks does not wait for long queues."""
MOST_LOOKS = 16
"""How often a cancellation looks for an agent that is being reserved in that very moment."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a dispatcher is told about one request."""

    job_id: str
    result: Result
    state: RequestState
    reason: str = ""
    agent_id: str | None = None
    backend_type: str | None = None
    scaler: str | None = None


def submit(
    runtime: Runtime, bodies: Sequence[ScaleRequestBody], *, may_leave: bool = False
) -> list[Answer]:
    """Store requests and decide them; the answers are in the order of the bodies.

    A request exists once this returns; asking again for the same job tells what became of
    it. When another holder is deciding, the answer is what stands in the row by then.

    Args:
        may_leave: while others decide, requests that may wait are only stored, and one pass decides
            all that came meanwhile. Nobody waits for it, and each costs a part of it.

    Raises:
        DatabaseUnreachable: whether it was stored is not known; ask again.
        Contended: another keeps one of these very jobs; nothing was stored, ask again.
    """
    rows = {body.job_id: body.to_row() for body in bodies}
    served = serve_ready.serve(runtime, list(rows.values()))
    others = {job_id: row for job_id, row in rows.items() if job_id not in served}
    told = {job_id: _ready(each) for job_id, each in served.items()}
    if others:
        _store(runtime, list(others.values()), may_leave=may_leave)
        told |= _answers(runtime, others)
    return [told[body.job_id] for body in bodies]


def _ready(served: Served) -> Answer:
    """As it stands in the rows that were just committed."""
    return Answer(
        job_id=served.job_id,
        result=Result.READY,
        state=RequestState.ASSIGNED,
        agent_id=served.agent_id,
        backend_type=served.backend_type,
        scaler=served.scaler,
    )


def _store(runtime: Runtime, rows: Sequence[NewRequest], *, may_leave: bool) -> None:
    """Insert, and decide at once, or after others, or leave it to their next pass."""
    may_leave = may_leave and all(row.may_wait for row in rows)
    with runtime.mutex.held(Patience.NONE if may_leave else Patience.AT_ONCE) as mine:
        leaves_it = mine is False and may_leave
        done = _store_and_try(runtime, rows, decides=not leaves_it)
    if done is not None:
        admit.announce(runtime, done)
        return
    reached("intake.stored")
    if not (leaves_it and runtime.hints.admit_left()):
        _decide_after_waiting(runtime, [row.job_id for row in rows])


def _store_and_try(
    runtime: Runtime, rows: Sequence[NewRequest], *, decides: bool
) -> admit.Pass | None:
    """Insert, and decide in the same transaction when the section is free.

    None when they are stored and not decided.
    """
    job_ids = [row.job_id for row in rows]
    try:
        with transaction(runtime.engine) as connection:
            if decides:
                section.bound_waits(connection, admit.PASS_SECONDS)
            if not request_rows.insert(connection, rows):
                return admit.Pass()
            if not decides or not section.try_enter(connection):
                return None
            done = admit.decide_and_reserve(connection, runtime.owner, job_ids, share=SHARE)
        reached("admit.committed")
    except CommitUnknown:
        if not _all_stored(runtime, job_ids):
            raise
        return None
    return done


def _decide_after_waiting(runtime: Runtime, job_ids: Sequence[str]) -> None:
    """Wait for the section; whoever held it has often decided these too."""
    try:
        with counting.lock_failures(), transaction(runtime.engine) as connection:
            section.bound_waits(connection, admit.PASS_SECONDS)
            section.enter(connection)
            if not _any_undecided(connection, job_ids):
                return
            done = admit.decide_and_reserve(connection, runtime.owner, job_ids, share=SHARE)
    except (Contended, CommitUnknown):
        runtime.hints.admit(soon=True)
        return
    admit.announce(runtime, done)


def _any_undecided(connection: Connection, job_ids: Sequence[str]) -> bool:
    found = request_rows.find(connection, job_ids)
    return any(
        row.state is RequestState.WAITING and row.decided_at is None for row in found.values()
    )


def _all_stored(runtime: Runtime, job_ids: Sequence[str]) -> bool:
    with transaction(runtime.engine) as connection:
        return len(request_rows.find(connection, job_ids)) == len(set(job_ids))


def _answers(runtime: Runtime, rows: Mapping[str, NewRequest]) -> dict[str, Answer]:
    with transaction(runtime.engine) as connection:
        found = request_rows.find(connection, list(rows))
    missing = next((job_id for job_id in rows if job_id not in found), None)
    if missing is not None:
        raise DatabaseUnreachable(f"the request of job {missing} could not be read back")
    return {job_id: _answer(found[job_id], row.digest) for job_id, row in rows.items()}


def answer_of(row: RequestRow) -> Answer:
    """What the state of a request means in the dispatcher's vocabulary."""
    return Answer(
        job_id=row.job_id,
        result=_result(row),
        state=row.state,
        reason=_reason(row),
        agent_id=row.agent_id,
        backend_type=row.backend_type,
        scaler=row.scaler or row.routed_scaler or None,
    )


def _answer(row: RequestRow, digest: str) -> Answer:
    if row.digest not in ("", digest):
        return Answer(
            job_id=row.job_id,
            result=Result.FAILED,
            state=row.state,
            reason=(
                f"job {row.job_id} was requested before with other labels, resources or image;"
                " the first request stands, use a new job id for another one"
            ),
        )
    return answer_of(row)


_WAITING_RESULTS = {
    WaitCode.UNDECIDED: Result.QUEUED,
    WaitCode.AT_CAPACITY: Result.AT_CAPACITY,
    WaitCode.NO_MACHINE: Result.AT_CAPACITY,
    WaitCode.NO_BACKEND: Result.NO_BACKEND,
    WaitCode.INVALID: Result.FAILED,
    WaitCode.BACKOFF: Result.SKIPPED,
    WaitCode.PAUSED: Result.SKIPPED,
    WaitCode.DRAINING: Result.SKIPPED,
}


def _result(row: RequestRow) -> Result:
    if row.state in (RequestState.WAITING, RequestState.REFUSED):
        return _WAITING_RESULTS[row.wait_code]
    if row.state is RequestState.CANCELLED:
        return Result.SKIPPED
    if row.state is RequestState.FAILED:
        return Result.FAILED
    ready = row.spawn_state in (SpawnState.IDLE, SpawnState.BUSY)
    return Result.READY if ready else Result.SPAWNING


def _reason(row: RequestRow) -> str:
    if row.state is RequestState.CANCELLED:
        return str((row.result or {}).get("error") or row.cancel_reason or "cancelled")
    if row.state is RequestState.FAILED:
        return cause_of(row.result or {}) or row.last_provisioning_error or "failed"
    return row.wait_reason


def _tell_to_stop(connection: Connection, agent_id: str) -> ending.Effects:
    grace = settings.windows(connection).cancel_grace_seconds
    request_ends.give_time_to_stop(connection, agent_id, seconds=grace)
    return ending.tell(connection, agent_id)


class _JustAssigned(Exception):
    """An agent was reserved for the job between the look for one and the mark."""


def cancel(
    runtime: Runtime,
    job_id: str,
    *,
    reason: str = "cancelled by the dispatcher",
    actor: str | None = None,
) -> RequestState:
    """Call a job off, in whatever state it is; returns the state after that.

    Args:
        actor: the operator who does so; None for the dispatcher, whose daily work is not audited.

    A waiting one ends at once; one whose agent has not accepted it ends with its spawn;
    a running one is told to stop and ends with its result, or with its agent if that takes
    too long.

    Raises:
        DatabaseUnreachable: whether it was called off is not known; repeat.
        Contended: it was not called off; repeat.
    """
    for _ in range(MOST_LOOKS):
        try:
            effects, final = _cancel_once(runtime, job_id, reason, actor)
        except _JustAssigned:
            continue
        ending.announce(runtime, effects)
        return final
    raise Contended


def _cancel_once(
    runtime: Runtime, job_id: str, reason: str, actor: str | None
) -> tuple[ending.Effects, RequestState]:
    """Spawn first, then its request: one that shows only after the mark is left to a new look."""
    with transaction(runtime.engine) as connection:
        section.bound_waits(connection, admit.PASS_SECONDS)
        agent_id = request_ends.spawn_of(connection, job_id)
        state = request_ends.cancel(connection, job_id=job_id, reason=reason)
        static_id = None if agent_id is not None else static_jobs.holder_of(connection, job_id)
        if agent_id is None and static_id is None and state is RequestState.ASSIGNED:
            raise _JustAssigned
        if actor is not None:
            audit.record(connection, actor, "request.cancel", job_id, {"reason": reason})
        effects = ending.Effects()
        if static_id is not None:
            effects = static_agents.cancel(
                connection,
                agent_id=static_id,
                job_id=job_id,
                running=state is RequestState.RUNNING,
                reason=reason,
            )
        if agent_id is not None and state is RequestState.ASSIGNED:
            effects = ending.end(
                connection,
                [agent_id],
                states=ending.BEFORE_ACCEPTED,
                reason=DestroyReason.SHUTDOWN,
                why=f"its job was cancelled: {reason}",
                windows=settings.windows(connection),
            )
        elif agent_id is not None:
            effects = _tell_to_stop(connection, agent_id)
        return effects, request_rows.find(connection, [job_id])[job_id].state
