"""What goes in and comes out of the client, as plain typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class RequestResult(StrEnum):
    """What the scaler answers to a request."""

    SPAWNING = "spawning"
    """An agent was reserved for it."""
    READY = "ready"
    """A connected agent takes it."""
    QUEUED = "queued"
    """Stored; not decided yet."""
    AT_CAPACITY = "at-capacity"
    """It waits for room, unless it did not want to wait."""
    NO_BACKEND = "no-backend"
    """Nothing configured offers these labels."""
    SKIPPED = "skipped"
    """Not now: paused, backing off, draining, or called off."""
    FAILED = "failed"
    """It cannot be served as it stands; the reason says why."""


class RequestState(StrEnum):
    """Where a request is."""

    WAITING = "waiting"
    ASSIGNED = "assigned"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self not in (RequestState.WAITING, RequestState.ASSIGNED, RequestState.RUNNING)


@dataclass(frozen=True, slots=True)
class Payload:
    """What the agent runs; sealed before it leaves this process."""

    command: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    stdin: str | None = field(default=None, repr=False)
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RegistryCredentials:
    """Credentials for the registry of a job's own image; sealed like the payload."""

    username: str
    password: str = field(repr=False)
    server: str | None = None
    """The registry's host; None means the one the image names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job that wants an agent.

    `resources` is written as in the scaler file: `{requests: {cpus, memory}, limits: ...}`
    or flat `{cpus, memory}` for both. A higher `priority` is served first. Without `wait`
    the job is served at once or refused.
    """

    job_id: str
    run_id: str
    labels: tuple[str, ...]
    payload: Payload
    exclude_labels: tuple[str, ...] = ()
    resources: Mapping[str, object] | None = None
    org: str | None = None
    role: str | None = None
    priority: int = 0
    image: str | None = None
    registry_credentials: RegistryCredentials | None = None
    wait: bool = True
    max_requeues: int | None = None
    """How often the job may move to another agent before one accepted it; None means the
    scaler's default."""


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """What the scaler said to a request."""

    job_id: str
    result: RequestResult
    state: RequestState | None = None
    reason: str = ""
    agent_id: str | None = None
    backend_type: str | None = None
    scaler: str | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """A request as it stands now."""

    job_id: str
    run_id: str
    state: RequestState
    reason: str = ""
    """Why it waits, or why it ended as it did."""
    agent_id: str | None = None
    scaler: str | None = None
    last_provisioning_error: str | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended.

    `exit_code` or `signal` is set when its command ran to an end; times are those of the
    agent. `error` is the agent's or the scaler's sentence about what went wrong.
    """

    job_id: str
    state: RequestState
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    agent_id: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the command exited with 0."""
        return self.state is RequestState.SUCCEEDED


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a job's output; `stream` is stdout, stderr or agent (gaps in the log)."""

    seq: int
    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an agent or a request; `id` only grows."""

    id: int
    type: str
    detail: str = ""
    at: datetime | None = None
    agent_id: str | None = None
    job_id: str | None = None
    run_id: str | None = None
