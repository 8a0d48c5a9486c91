"""The messages of the agent channel and the words in them.

Names are snake_case here and camelCase on the wire. Secrets and payloads stay out of
`repr`. What each message is for, when it goes and an example: `docs/agent-protocol.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from kici_scaler.agent.vocabulary import JobPhase, JobStatus, Stream

MAX_MESSAGE_BYTES = 1 << 20
"""Largest message either side takes, in bytes of UTF-8; what WebSocket libraries allow
unless told otherwise. A gateway may announce less for what it takes (`maxMessageBytes`)."""

MIN_MESSAGE_BYTES = 16 << 10
"""The least a gateway may announce as `maxMessageBytes`."""

MAX_LINE_BYTES = 65536
"""A longer log line is cut and marked; the reference's cap."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended; times in epoch milliseconds of the agent's clock.

    `exit_code` or `signal` is set when a process ended; both are None when none ever ran.
    A job cancelled before its command ran has `started_at == finished_at`.
    """

    status: JobStatus
    started_at: int
    finished_at: int
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JobPayload:
    """What to run. `env` comes on top of the agent's own, `stdin` is the input as text."""

    command: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    stdin: str | None = field(default=None, repr=False)
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What the agent's machine says of itself (`os`: linux, macos, windows; `arch`: x64, arm64)."""

    os: str
    arch: str
    hostname: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class JobClaim:
    """The job an agent says it holds when it registers."""

    job_id: str
    phase: JobPhase


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a claim code is exchanged for."""

    agent_token: str = field(repr=False)
    agent_id: str
    orchestrator_url: str
    labels: tuple[str, ...]


# Agent to gateway.


@dataclass(frozen=True, slots=True)
class Claim:
    """Exchange a claim code; allowed before `register`, answered by `claim.response`."""

    type: ClassVar[str] = "claim"
    request_id: str
    claim_code: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Register:
    """Who this is. `connection` is higher than in any earlier `register` of this agent."""

    type: ClassVar[str] = "register"
    protocol: int
    agent_id: str
    labels: tuple[str, ...]
    connection: int
    facts: Facts
    token: str | None = field(default=None, repr=False)
    resume_token: str | None = field(default=None, repr=False)
    job: JobClaim | None = None


@dataclass(frozen=True, slots=True)
class ConfigAck:
    """The agent took `register.ack` in and is ready for an offer."""

    type: ClassVar[str] = "config.ack"


@dataclass(frozen=True, slots=True)
class JobAccepted:
    """The promise to run a job, durable on the agent; sent again for a repeated offer."""

    type: ClassVar[str] = "job.accepted"
    job_id: str


@dataclass(frozen=True, slots=True)
class JobDeclined:
    """The agent will not run this job; see `DeclineReason`."""

    type: ClassVar[str] = "job.declined"
    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Log:
    """Lines of one stream, without line ends.

    `seq` counts from 1 per job. After a reconnect the agent repeats what it cannot know
    to have arrived: a receiver drops a `seq` it has.
    """

    type: ClassVar[str] = "log"
    job_id: str
    seq: int
    stream: Stream
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobFinished:
    """The result; repeated until acknowledged."""

    type: ClassVar[str] = "job.finished"
    job_id: str
    result: JobResult


@dataclass(frozen=True, slots=True)
class Leaving:
    """The agent goes and will not come back; it closes right after. See `LeaveReason`."""

    type: ClassVar[str] = "leaving"
    reason: str


# Gateway to agent.


@dataclass(frozen=True, slots=True)
class ClaimResponse:
    """Credentials, or why there are none (see `ClaimError`)."""

    type: ClassVar[str] = "claim.response"
    request_id: str
    credentials: Credentials | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RegisterAck:
    """The agent is registered.

    `resume_token` lets this agent return, and stays the same while its spawn lives.
    `pending_dispatch`: a job is about to be offered. `max_message_bytes`: the largest
    message the gateway takes, at least `MIN_MESSAGE_BYTES`.
    """

    type: ClassVar[str] = "register.ack"
    agent_id: str
    resume_token: str = field(repr=False)
    mandatory_labels: tuple[str, ...] = ()
    scaler_managed: bool = True
    warm_pool: bool = False
    pending_dispatch: bool = False
    scaler: Mapping[str, object] | None = None
    max_message_bytes: int = MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class JobOffer:
    """Would you run this? The payload comes later, with `job.start`."""

    type: ClassVar[str] = "job.offer"
    job_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class JobStart:
    """Run it now; the agent's promise is committed and the job goes nowhere else."""

    type: ClassVar[str] = "job.start"
    job_id: str
    payload: JobPayload


@dataclass(frozen=True, slots=True)
class JobFinishedAck:
    """The result is stored; the agent may forget it."""

    type: ClassVar[str] = "job.finished.ack"
    job_id: str


@dataclass(frozen=True, slots=True)
class JobCancel:
    """Stop the job; the agent still reports a result."""

    type: ClassVar[str] = "job.cancel"
    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop the job, report, leave."""

    type: ClassVar[str] = "shutdown"
    reason: str


@dataclass(frozen=True, slots=True)
class ErrorNotice:
    """Text for a person, sent before a close."""

    type: ClassVar[str] = "error"
    code: str
    message: str


FromAgent = Claim | Register | ConfigAck | JobAccepted | JobDeclined | Log | JobFinished | Leaving
FromGateway = (
    ClaimResponse
    | RegisterAck
    | JobOffer
    | JobStart
    | JobFinishedAck
    | JobCancel
    | Shutdown
    | ErrorNotice
)
