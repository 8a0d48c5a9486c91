"""Shapes of the HTTP interface, camelCase on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from kici_scaler.domain.request import RequestState, Result, WaitCode
from kici_scaler.service.answers import Answer
from kici_scaler.store.events import EventRow
from kici_scaler.store.requests import RequestRow

STORABLE = r"^[^\x00]*$"
"""Text that the database can hold."""


class Shape(BaseModel):
    """Base of everything that is answered."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )


class RequestAnswer(Shape):
    """What became of one scale request so far.

    `result` is the dispatcher's word for it, `state` the row's; `reason` says why it
    waits, was refused or failed.
    """

    job_id: str
    result: Result
    state: RequestState
    reason: str = ""
    agent_id: str | None = None
    backend_type: str | None = None
    scaler: str | None = None

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """From the use case's answer."""
        return cls(**asdict(answer))


class BatchAnswer(Shape):
    """Answers in the order of the requests."""

    answers: list[RequestAnswer]


class CancelBody(BaseModel):
    """Why a job is called off."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="cancelled by the dispatcher", min_length=1, max_length=500)


class CancelAnswer(Shape):
    """The state after a cancellation; a running job ends with its result a little later."""

    job_id: str
    state: RequestState


class RequestView(Shape):
    """A scale request in full, without what is sealed."""

    job_id: str
    run_id: str
    org: str | None
    standing: Result
    """The word for it in the answer to a request."""
    state: RequestState
    reason: str
    labels: list[str]
    exclude_labels: list[str]
    image: str | None
    priority: int
    requeues: int
    wait_code: WaitCode
    last_provisioning_error: str | None
    cancel_reason: str | None
    result: Mapping[str, Any] | None
    """How the job ended, once it is over: status, exitCode, signal, error, times."""
    created_at: datetime
    decided_at: datetime | None
    finished_at: datetime | None
    agent_id: str | None
    scaler: str | None
    backend_type: str | None
    machine_id: str | None
    agent_state: str | None
    reserved_by: str | None = None
    """The process that reserved the agent it has, and the configuration that this followed."""
    revision: int | None = None
    cpus: float | None = None
    """What the job itself declares."""
    mem_bytes: int | None = None

    @classmethod
    def of(cls, row: RequestRow, answer: Answer) -> Self:
        """From the row and what it means to a dispatcher."""
        return cls(
            job_id=row.job_id, run_id=row.run_id, org=row.org,
            standing=answer.result, state=row.state, reason=answer.reason,
            labels=list(row.labels), exclude_labels=list(row.exclude), image=row.image,
            priority=row.priority, requeues=row.requeues, wait_code=row.wait_code,
            last_provisioning_error=row.last_provisioning_error,
            cancel_reason=row.cancel_reason, result=row.result,
            created_at=row.enqueued_at, decided_at=row.decided_at,
            finished_at=row.finished_at, agent_id=row.agent_id, scaler=answer.scaler,
            backend_type=row.backend_type, machine_id=row.machine_id,
            agent_state=row.spawn_state, reserved_by=row.owner, revision=row.revision_id,
            cpus=None if row.request_cpu_millis is None else row.request_cpu_millis / 1000,
            mem_bytes=row.request_memory_bytes,
        )  # fmt: skip


class RequestList(Shape):
    """Requests that are not over, oldest first; or those in the asked states."""

    requests: list[RequestView]


class EventView(Shape):
    """One lifecycle event; `id` only grows."""

    id: int
    at: datetime
    type: str
    agent_id: str | None
    job_id: str | None
    run_id: str | None
    detail: str

    @classmethod
    def of(cls, row: EventRow) -> Self:
        """From its row."""
        return cls(**asdict(row))


class EventList(Shape):
    """Events past the asked one, and where to go on."""

    events: list[EventView]
    next_after: int


class SealingKeyView(Shape):
    """The public key to seal payloads with."""

    key_id: str
    public_key: str
    algorithm: str = "libsodium-sealed-box"


class Health(Shape):
    """A process, and whether it serves."""

    status: str
    incarnation: str = ""
