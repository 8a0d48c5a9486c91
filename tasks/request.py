"""Intake: what a dispatcher enqueues. The result tells what became of each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kici_scaler.broker import task_names
from kici_scaler.checkpoints import reached
from kici_scaler.service import request as requests
from kici_scaler.service.answers import Answer
from kici_scaler.service.request_body import BadRequest, ScaleRequestBody, parse_request
from kici_scaler.store.engine import Contended, DatabaseUnreachable
from tasks.app import app
from tasks.process import runtime

MOST_IN_ONE = 1_000
"""Requests in one task; a dispatcher with more sends several tasks."""
INTAKE_OPTIONS: dict[str, Any] = {
    "ignore_result": False,
    "autoretry_for": (DatabaseUnreachable, Contended),
    "max_retries": 5,
    "retry_backoff": 2,
    "retry_backoff_max": 30,
}

Plain = dict[str, object]


@app.task(shared=False, name=task_names.REQUEST_SCALE, **INTAKE_OPTIONS)
def request_scale(*, request: Mapping[str, Any]) -> Plain:
    """An agent for one job; answers what became of the request, or `error`."""
    return scale_many([request])[0]


@app.task(shared=False, name=task_names.REQUEST_SCALE_MANY, **INTAKE_OPTIONS)
def request_scale_many(*, requests: Sequence[Mapping[str, Any]]) -> list[Plain]:
    """Agents for many jobs at once; one bad request costs the others nothing."""
    return scale_many(requests)


@app.task(shared=False, name=task_names.CANCEL_REQUEST, **INTAKE_OPTIONS)
def cancel_request(*, job_id: str, reason: str = "cancelled by the dispatcher") -> Plain:
    """Call a job off, also before its request has come."""
    state = requests.cancel(runtime(), job_id, reason=reason)
    return {"jobId": job_id, "state": state.value}


def scale_many(bodies: Sequence[Mapping[str, Any]]) -> list[Plain]:
    """Check, store and decide; the answers are in the order of the bodies."""
    reached("intake.received")
    if len(bodies) > MOST_IN_ONE:
        message = f"{len(bodies)} requests in one task; send at most {MOST_IN_ONE}"
        return [_refusal("", message)]
    checked = [_checked(body) for body in bodies]
    good = [each for each in checked if isinstance(each, ScaleRequestBody)]
    told = requests.submit(runtime(), good, may_leave=True) if good else []
    answers = {each.job_id: each for each in told}
    return [
        _plain(answers[each.job_id]) if isinstance(each, ScaleRequestBody) else each
        for each in checked
    ]


def _checked(body: Mapping[str, Any]) -> ScaleRequestBody | Plain:
    try:
        return parse_request(body)
    except BadRequest as error:
        job_id = body.get("jobId") if isinstance(body, Mapping) else None
        return _refusal(str(job_id or ""), str(error))


def _refusal(job_id: str, message: str) -> Plain:
    return {"jobId": job_id, "error": {"code": "bad-request", "message": message}}


def _plain(answer: Answer) -> Plain:
    return {
        "jobId": answer.job_id,
        "result": answer.result.value,
        "state": answer.state.value,
        "reason": answer.reason,
        "agentId": answer.agent_id,
        "backendType": answer.backend_type,
        "scaler": answer.scaler,
    }
