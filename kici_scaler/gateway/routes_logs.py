"""Output of jobs and agents, as JSON lines."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from kici_scaler.gateway import following
from kici_scaler.gateway.access import AsDispatcher, AsOperator
from kici_scaler.gateway.wiring import TheGateway

router = APIRouter(prefix="/v1", tags=["logs"])

After = Annotated[int, Query(ge=0, lt=1 << 63, description="leave out records up to this seq")]
Follow = Annotated[bool, Query(description="go on until the end; false: what there is now")]
_JSON_LINES = "application/x-ndjson"
_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {_JSON_LINES: {"schema": {"type": "string"}}}}
}


@router.get("/requests/{job_id:path}/log", response_class=StreamingResponse, responses=_ANSWER)
async def job_log(
    job_id: Annotated[str, Path(min_length=1, max_length=200)],
    gateway: TheGateway,
    _: AsDispatcher,
    after: After = 0,
    follow: Follow = True,
) -> StreamingResponse:
    """A job's output from its beginning, one JSON object `{seq, stream, lines}` a line.

    It ends when the job is over. One that breaks off is asked for again with `after`.
    """
    look = following.of_job(job_id)
    lines = await following.records(gateway, look, job_id=job_id, after=after, follow=follow)
    return StreamingResponse(lines, media_type=_JSON_LINES)


@router.get("/agents/{agent_id}/logs", response_class=StreamingResponse, responses=_ANSWER)
async def agent_log(
    agent_id: Annotated[str, Path(min_length=1, max_length=256)],
    gateway: TheGateway,
    _: AsOperator,
    after: After = 0,
    follow: Follow = False,
) -> StreamingResponse:
    """An agent's output, as for a job; after its end what was kept of it."""
    look = following.of_agent(agent_id)
    lines = await following.records(gateway, look, job_id=None, after=after, follow=follow)
    return StreamingResponse(lines, media_type=_JSON_LINES)
