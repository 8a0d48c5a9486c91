"""The operator's side: configurations taken in, planned, listed and brought back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from kici_scaler.domain.reload import Change, ReloadPlan
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.gateway.access import AsOperator
from kici_scaler.gateway.models import STORABLE, Shape
from kici_scaler.gateway.scaler_files import ItsFiles, ScalerFiles
from kici_scaler.gateway.wiring import TheGateway
from kici_scaler.service import reload
from kici_scaler.service.reload import Reloaded
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.revisions import RevisionRow

RevisionId = Annotated[int, Path(ge=1, lt=1 << 63)]

router = APIRouter(prefix="/v1/config", tags=["configuration"])


class ReloadBody(BaseModel):
    """A configuration as data (what `config show --json` prints), or none.

    Without a document the gateway reads the file that its own settings name.
    """

    model_config = ConfigDict(extra="forbid")

    document: dict[str, Any] | None = None
    source: str = Field(default="the API", max_length=500, pattern=STORABLE)
    plan: bool = False
    """Only say what would happen."""


class ScalerChange(Shape):
    """What becomes of one scaler."""

    name: str
    bucket: str
    changes: list[str]


class ReloadAnswer(Shape):
    """What a reload did or would do."""

    revision: int
    applied: bool
    scalers: list[ScalerChange]
    cluster: list[str]
    drained: Mapping[str, Mapping[SpawnState, int]]
    """Live agents by scaler that leaves and by state; what runs a job finishes it."""
    warnings: list[str]

    @classmethod
    def of(cls, done: Reloaded) -> Self:
        """From the use case's answer."""
        return cls(
            revision=done.revision_id,
            applied=done.applied,
            scalers=_changes(done.plan),
            cluster=[_sentence(each) for each in done.plan.cluster],
            drained=done.drained,
            warnings=[*done.warnings, *done.unserved],
        )


class RevisionView(Shape):
    """One accepted configuration."""

    id: int
    digest: str
    source: str
    author: str
    active: bool
    created_at: datetime
    summary: str
    """What it changed, in one line: `+added, -removed, ~changed (fields), globals`."""

    @classmethod
    def of(cls, row: RevisionRow) -> Self:
        """From its row."""
        return cls(
            id=row.id,
            digest=row.digest,
            source=row.source,
            author=row.author,
            active=row.active,
            created_at=row.created_at,
            summary=row.summary,
        )


class RevisionList(Shape):
    """Accepted configurations, newest first."""

    revisions: list[RevisionView]


class RevisionDocument(Shape):
    """One configuration in full, and what changed from the one before it."""

    id: int
    document: dict[str, Any]
    scalers: list[ScalerChange]
    cluster: list[str]


@router.post("/reload")
async def reload_config(
    body: ReloadBody, gateway: TheGateway, files: ItsFiles, caller: AsOperator
) -> ReloadAnswer:
    """Take a configuration over whole, or refuse it whole."""
    done = await gateway.threads.http(_reload, gateway.runtime, body, files, caller.actor)
    return ReloadAnswer.of(done)


def _reload(runtime: Runtime, body: ReloadBody, files: ScalerFiles, author: str) -> Reloaded:
    if body.document is not None:
        candidate = reload.of_document(runtime.engine, body.document, body.source)
    else:
        candidate = files.read(runtime.engine)
    if body.plan:
        return reload.plan(runtime.engine, candidate)
    return reload.apply(runtime, candidate, author=author)


@router.get("/revisions")
async def history(
    gateway: TheGateway, _: AsOperator, limit: Annotated[int, Query(ge=1, le=1_000)] = 50
) -> RevisionList:
    """What was accepted, when, and from whom."""
    rows = await gateway.threads.http(reload.history, gateway.runtime.engine, limit)
    return RevisionList(revisions=[RevisionView.of(row) for row in rows])


@router.get("/revisions/{revision}")
async def one(revision: RevisionId, gateway: TheGateway, _: AsOperator) -> RevisionDocument:
    """A configuration in full."""
    document, plan = await gateway.threads.http(reload.shown, gateway.runtime.engine, revision)
    return RevisionDocument(
        id=revision,
        document=dict(document),
        scalers=_changes(plan),
        cluster=[_sentence(each) for each in plan.cluster],
    )


@router.post("/revisions/{revision}/rollback")
async def roll_back(revision: RevisionId, gateway: TheGateway, caller: AsOperator) -> ReloadAnswer:
    """Take an earlier configuration over again, as a new revision."""
    done = await gateway.threads.http(
        reload.roll_back, gateway.runtime, revision, author=caller.actor
    )
    return ReloadAnswer.of(done)


def _changes(plan: ReloadPlan) -> list[ScalerChange]:
    return [
        ScalerChange(
            name=each.name,
            bucket=each.bucket.value,
            changes=[_sentence(change) for change in each.changes],
        )
        for each in plan.scalers
    ]


def _sentence(change: Change) -> str:
    return f"{change.field}: {change.old} -> {change.new}"
