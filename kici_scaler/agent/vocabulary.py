"""The words that messages of the agent channel are made of."""

from __future__ import annotations

from enum import StrEnum


class ClaimError(StrEnum):
    """Texts of `claim.response.error` that no retry can change.

    Any other text means that the gateway could not tell, and the agent asks again later.
    """

    INVALID = "invalid claim code"
    CONSUMED = "claim code already consumed"
    EXPIRED = "claim code expired"


class JobPhase(StrEnum):
    """How far an agent is with its job."""

    ACCEPTED = "accepted"
    """Promised; the payload is not here yet."""
    RUNNING = "running"
    FINISHED = "finished"
    """The result is known and not acknowledged yet."""


class JobStatus(StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    """The command exited with 0."""
    FAILED = "failed"
    """Another exit code, a signal, or out of time."""
    CANCELLED = "cancelled"
    """Told to stop, by `job.cancel`, `shutdown` or a signal to the agent."""
    ERROR = "error"
    """The command could not be started or watched; `error` says why."""


class Stream(StrEnum):
    """Where a log line comes from."""

    STDOUT = "stdout"
    STDERR = "stderr"
    AGENT = "agent"
    """Said by the agent about the log itself, such as a gap."""


class LeaveReason(StrEnum):
    """Why an agent leaves of its own accord."""

    IDLE_TIMEOUT = "idle-timeout"
    SHUTDOWN = "shutdown"
    """The gateway said `shutdown`."""
    SIGNAL = "signal"
    """The agent's process got SIGTERM, SIGINT or SIGHUP."""


class DeclineReason(StrEnum):
    """Why an agent does not take a job."""

    BUSY = "busy"
    LEAVING = "leaving"
    NOT_ACCEPTED = "not-accepted"
    """A `job.start` for a job this agent never accepted."""
