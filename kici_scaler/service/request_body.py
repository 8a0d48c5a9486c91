"""What a dispatcher sends for one job, checked before anything is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from kici_scaler.domain.labels import canonical, label_problem
from kici_scaler.domain.resources import BadResources, parse_resources
from kici_scaler.domain.scalers import Resources, Role
from kici_scaler.errors import InvalidInput
from kici_scaler.store.requests import NewRequest

MAX_SEALED_BYTES = 64 * 1024
MAX_LABELS = 64
MAX_LABEL_LENGTH = 128


class BadRequest(InvalidInput):
    """The scale request breaks a rule; nothing was stored."""


def _label(value: str) -> str:
    """Requested labels may name the reserved `kici:` ones; agents offer those."""
    label = canonical(value)
    if label_problem(value) is not None or len(label) > MAX_LABEL_LENGTH:
        raise ValueError(
            f"a label is 1 to {MAX_LABEL_LENGTH} printable characters without commas,"
            f" not {value[:40]!r}"
        )
    return label


def _resources(value: object) -> Resources:
    if isinstance(value, Resources):
        return value
    try:
        return parse_resources(value)
    except BadResources as error:
        raise ValueError(str(error)) from error


def _distinct(labels: list[str]) -> list[str]:
    return sorted(set(labels))


_NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_NO_CONTROLS)]
Label = Annotated[str, AfterValidator(_label)]
Labels = Annotated[list[Label], Field(max_length=MAX_LABELS), AfterValidator(_distinct)]


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        arbitrary_types_allowed=True,
    )


class Envelope(_Strict):
    """Something the caller sealed to one of the cluster's public keys."""

    key_id: Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=_NO_CONTROLS)]
    sealed: Annotated[
        str,
        StringConstraints(min_length=1, max_length=MAX_SEALED_BYTES, pattern=_NO_CONTROLS),
    ]


class JobContainer(_Strict):
    """The container image a job brings along."""

    image: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=_NO_CONTROLS)]


class ScaleRequestBody(_Strict):
    """One job that wants an agent.

    `payload` is the sealed JSON the agent will run; `wait` false means: serve it now or
    refuse it; `maxRequeues` bounds how often a job whose agent died before accepting it
    is tried again.
    """

    job_id: Name
    run_id: Name
    labels: Labels
    exclude_labels: Labels = Field(default_factory=list)
    resources: Annotated[Resources, BeforeValidator(_resources)] = Field(
        default_factory=Resources, json_schema_extra={"type": "object"}
    )
    org: Name | None = None
    role: Role | None = None
    priority: int = Field(default=0, ge=-1000, le=1000)
    container: JobContainer | None = None
    payload: Envelope
    registry_credentials: Envelope | None = None
    wait: bool = True
    max_requeues: int = Field(default=2, ge=0, le=20)

    def to_row(self) -> NewRequest:
        """The row this becomes; sealed parts stay sealed."""
        requests, limits = self.resources.requests, self.resources.limits
        return NewRequest(
            job_id=self.job_id,
            run_id=self.run_id,
            digest=self._digest(),
            labels=tuple(self.labels),
            exclude=tuple(self.exclude_labels),
            org=self.org,
            role=None if self.role is None else self.role.value,
            request_cpu_millis=requests.cpu_millis,
            request_memory_bytes=requests.memory_bytes,
            limit_cpu_millis=limits.cpu_millis,
            limit_memory_bytes=limits.memory_bytes,
            image=None if self.container is None else self.container.image,
            priority=self.priority,
            may_wait=self.wait,
            max_requeues=self.max_requeues,
            sealed_payload=self.payload.model_dump(by_alias=True),
            sealed_registry=None
            if self.registry_credentials is None
            else self.registry_credentials.model_dump(by_alias=True),
        )

    def _digest(self) -> str:
        """Of the open parts: each sealing of one payload looks different."""
        requests, limits = self.resources.requests, self.resources.limits
        parts = [
            self.run_id, self.labels, self.exclude_labels, self.org, self.role,
            [requests.cpu_millis, requests.memory_bytes, limits.cpu_millis, limits.memory_bytes],
            None if self.container is None else self.container.image,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def parse_request(value: Mapping[str, Any]) -> ScaleRequestBody:
    """A checked request body.

    Raises:
        BadRequest: with every problem, each at its path.
    """
    try:
        return ScaleRequestBody.model_validate(value)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in each['loc']) or 'request'}: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)[:10]
        )
        raise BadRequest(f"the scale request was not stored: {problems}") from error
