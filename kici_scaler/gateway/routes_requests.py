"""The dispatcher's side: scale requests in, cancelled, looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, status

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.domain.request import RequestState, Result
from kici_scaler.gateway.access import AsDispatcher
from kici_scaler.gateway.errors import HttpError
from kici_scaler.gateway.models import (
    BatchAnswer,
    CancelAnswer,
    CancelBody,
    RequestAnswer,
    RequestList,
    RequestView,
)
from kici_scaler.gateway.models_explain import JobExplanationView
from kici_scaler.gateway.wiring import TheGateway
from kici_scaler.service import explain_job, request
from kici_scaler.service.answers import answer_of
from kici_scaler.service.request_body import BadRequest, ScaleRequestBody, parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import requests as request_rows
from kici_scaler.store.engine import transaction

MOST_AT_ONCE = 1_000

router = APIRouter(prefix="/v1/requests", tags=["requests"])

JobId = Annotated[str, Path(min_length=1, max_length=200)]


@router.post("", status_code=status.HTTP_201_CREATED)
async def submit(body: ScaleRequestBody, gateway: TheGateway, _: AsDispatcher) -> RequestAnswer:
    """Ask for an agent for one job.

    The request exists once this is answered; repeat it until it is. Asking again for the
    same job tells what became of it.
    """
    (answer,) = await gateway.threads.http(request.submit, gateway.runtime, [body])
    return RequestAnswer.of(answer)


@router.post("/batch", status_code=status.HTTP_201_CREATED)
async def submit_batch(
    requests: Annotated[
        list[dict[str, Any]],
        Body(
            embed=True,
            min_length=1,
            max_length=MOST_AT_ONCE,
            json_schema_extra={"items": {"$ref": "#/components/schemas/ScaleRequestBody"}},
        ),
    ],
    gateway: TheGateway,
    _: AsDispatcher,
) -> BatchAnswer:
    """Ask for agents for up to 1,000 jobs in one decision.

    A request that breaks a rule fails alone, with `result` failed and its reason; the
    others are stored.
    """
    return BatchAnswer(answers=await gateway.threads.http(_submit_all, gateway.runtime, requests))


@router.post("/{job_id:path}/cancel")
async def cancel(
    job_id: JobId, gateway: TheGateway, caller: AsDispatcher, body: CancelBody | None = None
) -> CancelAnswer:
    """Call a job off, whatever its state; one never heard of stays cancelled."""
    state = await gateway.threads.http(
        request.cancel,
        gateway.runtime,
        job_id,
        reason=(body or CancelBody()).reason,
        actor=caller.actor if caller.may(KeyScope.OPERATOR) else None,
    )
    return CancelAnswer(job_id=job_id, state=state)


@router.get("")
async def listed(
    gateway: TheGateway,
    _: AsDispatcher,
    state: Annotated[list[RequestState] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 200,
) -> RequestList:
    """Requests that are not over, oldest first; or those in the given states, newest first."""
    found = await gateway.threads.http(recent, gateway.runtime, state, limit)
    return RequestList(requests=found)


@router.get("/{job_id:path}/explain")
async def explained(job_id: JobId, gateway: TheGateway, _: AsDispatcher) -> JobExplanationView:
    """Why a job waits and what could serve it, or where it went."""
    found = await gateway.threads.http(explain_job.explain, gateway.runtime, job_id)
    return JobExplanationView.of(found)


@router.get("/{job_id:path}")
async def one(job_id: JobId, gateway: TheGateway, _: AsDispatcher) -> RequestView:
    """A request and its agent."""
    row = await gateway.threads.http(explain_job.find, gateway.runtime, job_id)
    return RequestView.of(row, answer_of(row))


def recent(
    runtime: Runtime, states: Sequence[RequestState] | None, limit: int
) -> list[RequestView]:
    """Requests that are not over, oldest first; or those in the given states."""
    wanted = None if states is None else [each.value for each in states]
    with transaction(runtime.engine) as connection:
        rows = request_rows.recent(connection, states=wanted, limit=limit)
    return [RequestView.of(row, answer_of(row)) for row in rows]


def _submit_all(runtime: Runtime, values: Sequence[dict[str, Any]]) -> list[RequestAnswer]:
    good: list[ScaleRequestBody] = []
    answers: dict[int, RequestAnswer] = {}
    places: list[int] = []
    for place, value in enumerate(values):
        try:
            good.append(parse_request(value))
            places.append(place)
        except BadRequest as problem:
            answers[place] = _refused(place, value, problem)
    if good:
        stored = request.submit(runtime, good)
        answers.update(zip(places, map(RequestAnswer.of, stored), strict=True))
    return [answers[place] for place in range(len(values))]


def _refused(place: int, value: dict[str, Any], problem: BadRequest) -> RequestAnswer:
    job_id = value.get("jobId")
    if not isinstance(job_id, str):
        raise HttpError(400, "bad-request", f"requests.{place}.jobId: expected a text")
    return RequestAnswer(
        job_id=job_id, result=Result.FAILED, state=RequestState.REFUSED, reason=str(problem)
    )
