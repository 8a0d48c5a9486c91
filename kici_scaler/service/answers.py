"""What a dispatcher is told about its requests."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kici_scaler.domain.request import RequestState, Result, WaitCode, cause_of
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service.admit import Pass
from kici_scaler.service.serve_ready import Served
from kici_scaler.store.requests import RequestRow


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


def ready(served: Served) -> Answer:
    """Of one that was just committed with a ready agent."""
    return Answer(
        job_id=served.job_id,
        result=Result.READY,
        state=RequestState.ASSIGNED,
        agent_id=served.agent_id,
        backend_type=served.backend_type,
        scaler=served.scaler,
    )


def left(job_id: str) -> Answer:
    """Of one that was just stored and is decided shortly."""
    return Answer(job_id=job_id, result=Result.QUEUED, state=RequestState.WAITING)


def of_pass(done: Pass, new: Collection[str]) -> dict[str, Answer]:
    """Of those new ones for which a pass that was just committed reserved an agent."""
    return {
        each.request.job_id: Answer(
            job_id=each.request.job_id,
            result=Result.SPAWNING,
            state=RequestState.ASSIGNED,
            agent_id=done.agents[each.request.job_id],
            backend_type=each.scaler.type.value,
            scaler=each.scaler.name,
        )
        for each in done.admits
        if each.request.job_id in new
    }


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


def to_asker(row: RequestRow, digest: str) -> Answer:
    """The same for who asks with a request of that digest, which may be another one."""
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
