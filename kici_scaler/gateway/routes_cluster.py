"""The operator's side: what is done to the cluster as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from kici_scaler.domain.request import RequestState
from kici_scaler.gateway.access import AsOperator
from kici_scaler.gateway.models import Shape
from kici_scaler.gateway.wiring import TheGateway
from kici_scaler.service import operations, status
from kici_scaler.service.status import ClusterStatus
from kici_scaler.store.audit import AuditRow

router = APIRouter(prefix="/v1", tags=["cluster"])


class DrainBody(BaseModel):
    """Whether new demand shall be turned away."""

    model_config = ConfigDict(extra="forbid")

    draining: bool


class DrainView(Shape):
    """Whether new demand is turned away, and how many jobs still run."""

    draining: bool
    jobs_running: int

    @classmethod
    def of(cls, found: ClusterStatus) -> Self:
        """From what was read."""
        running = found.requests.get(RequestState.RUNNING.value, 0)
        return cls(draining=found.draining, jobs_running=running)


@router.get("/drain")
async def draining(gateway: TheGateway, _: AsOperator) -> DrainView:
    """Whether the cluster drains."""
    return DrainView.of(await gateway.threads.http(status.read, gateway.runtime))


@router.post("/drain")
async def drain(body: DrainBody, gateway: TheGateway, caller: AsOperator) -> DrainView:
    """Turn new demand away, or take it again; running agents go on either way."""
    await gateway.threads.http(
        operations.set_draining, gateway.runtime, body.draining, actor=caller.actor
    )
    return DrainView.of(await gateway.threads.http(status.read, gateway.runtime))


class ResumeAnswer(Shape):
    """Whether anything was held back until now."""

    resumed: bool


@router.post("/resume")
async def resume(gateway: TheGateway, caller: AsOperator) -> ResumeAnswer:
    """Let admission and reclaim go on after a failover of the database."""
    lifted = await gateway.threads.http(operations.resume, gateway.runtime, actor=caller.actor)
    return ResumeAnswer(resumed=lifted)


class AuditEntry(Shape):
    """One thing that an operator did; `detail` differs by action."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Any]

    @classmethod
    def of(cls, row: AuditRow) -> Self:
        """From its row."""
        return cls(
            id=row.id,
            at=row.at,
            actor=row.actor,
            action=row.action,
            subject=row.subject,
            detail=row.detail,
        )


class AuditList(Shape):
    """What operators did, newest first."""

    entries: list[AuditEntry]


@router.get("/audit")
async def audit(
    gateway: TheGateway, _: AsOperator, limit: Annotated[int, Query(ge=1, le=10_000)] = 50
) -> AuditList:
    """Who did what to what, and when."""
    rows = await gateway.threads.http(operations.audited, gateway.runtime, limit)
    return AuditList(entries=[AuditEntry.of(row) for row in rows])
