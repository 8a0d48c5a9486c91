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
from kici_scaler.domain.request import RequestState
from kici_scaler.domain.spawn import DestroyReason
from kici_scaler.service import admit, answers, counting, ending, serve_ready, static_agents
from kici_scaler.service.answers import Answer
from kici_scaler.service.ports import Patience
from kici_scaler.service.request_body import ScaleRequestBody
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import audit, intake, request_ends, section, settings, static_jobs
from kici_scaler.store import requests as request_rows
from kici_scaler.store.engine import CommitUnknown, DatabaseUnreachable, transaction
from kici_scaler.store.requests import NewRequest
from kici_scaler.store.section import Contended
from kici_scaler.store.single import one_statement

SHARE = 4
"""By what the bounds of a pass are divided here, so that who asks does not wait for long queues."""
MOST_LOOKS = 16
"""How often a cancellation looks for an agent that is being reserved in that very moment."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """What was done in one transaction with requests that came."""

    new: frozenset[str] = frozenset()
    """Jobs that nobody knew before."""
    done: admit.Pass | None = None
    """The pass that decided them; None when they are only stored."""


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
        Contended: another keeps one of these very jobs; the others may be stored, ask again.
    """
    rows = {body.job_id: body.to_row() for body in bodies}
    served = serve_ready.serve(runtime, list(rows.values()))
    told = {job_id: answers.ready(each) for job_id, each in served.items()}
    others = {job_id: row for job_id, row in rows.items() if job_id not in told}
    if others:
        told |= _store(runtime, others, may_leave=may_leave)
    return [told[body.job_id] for body in bodies]


def _store(
    runtime: Runtime, rows: Mapping[str, NewRequest], *, may_leave: bool
) -> dict[str, Answer]:
    """Insert, and decide at once, or after others, or leave it to their next pass."""
    may_leave = may_leave and all(row.may_wait for row in rows.values())
    with runtime.mutex.held(Patience.NONE if may_leave else Patience.AT_ONCE) as turn:
        leaves_it = turn.is_mine is False and may_leave
        try:
            stored = _insert(runtime, rows) if leaves_it else _insert_and_try(runtime, rows)
        except CommitUnknown:
            if not _all_stored(runtime, list(rows)):
                raise
            stored = _Stored()
        if stored.done is not None:
            admit.announce(runtime, stored.done)
    if stored.done is not None:
        return _read_back(runtime, rows, answers.of_pass(stored.done, stored.new))
    reached("intake.stored")
    if leaves_it and runtime.hints.admit_left(turn):
        return _read_back(runtime, rows, {job_id: answers.left(job_id) for job_id in stored.new})
    _decide_after_waiting(runtime, list(rows))
    return _read_back(runtime, rows, {})


def _insert(runtime: Runtime, rows: Mapping[str, NewRequest]) -> _Stored:
    with one_statement(runtime.engine) as connection:
        new = request_rows.insert(connection, rows.values())
    return _Stored(new, None if new else admit.Pass())


def _insert_and_try(runtime: Runtime, rows: Mapping[str, NewRequest]) -> _Stored:
    """Insert, and decide in the same transaction when the section is free."""
    with transaction(runtime.engine) as connection:
        new, entered = intake.insert_and_try(
            connection, rows.values(), bound_seconds=admit.PASS_SECONDS
        )
        if not new:
            return _Stored(new, admit.Pass())
        if not entered:
            return _Stored(new)
        done = admit.decide_and_reserve(connection, runtime.owner, list(rows), share=SHARE)
    reached("admit.committed")
    return _Stored(new, done)


def _decide_after_waiting(runtime: Runtime, job_ids: Sequence[str]) -> None:
    """Wait for the section; whoever held it has often decided these too."""
    try:
        with counting.lock_failures(), transaction(runtime.engine) as connection:
            section.enter(connection, bound_seconds=admit.PASS_SECONDS)
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


def _read_back(
    runtime: Runtime, rows: Mapping[str, NewRequest], known: Mapping[str, Answer]
) -> dict[str, Answer]:
    """What is known of the requests, and what stands in the rows of the others."""
    others = [job_id for job_id in rows if job_id not in known]
    if not others:
        return dict(known)
    with transaction(runtime.engine) as connection:
        found = request_rows.find(connection, others)
    missing = next((job_id for job_id in others if job_id not in found), None)
    if missing is not None:
        raise DatabaseUnreachable(f"the request of job {missing} could not be read back")
    return {**known, **{each: answers.to_asker(found[each], rows[each].digest) for each in others}}


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
