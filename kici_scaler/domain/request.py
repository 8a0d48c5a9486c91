"""A scale request: a job that wants an agent, and what became of it."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from kici_scaler.domain.scalers import Resources, Role


class RequestState(StrEnum):
    """Where a scale request is."""

    WAITING = "waiting"
    """No agent yet; its reason says why."""
    ASSIGNED = "assigned"
    """One live spawn stands for it."""
    RUNNING = "running"
    """Its agent accepted it; it is never given to another."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    """Could not be served at once and did not want to wait."""


OVER = frozenset(
    {RequestState.SUCCEEDED, RequestState.FAILED, RequestState.CANCELLED, RequestState.REFUSED}
)


def cause_of(result: Mapping[str, object]) -> str:
    """Why a job failed, from its result: what the agent says, else how the command ended."""
    error, code, number = (result.get(key) for key in ("error", "exitCode", "signal"))
    if error:
        return str(error)
    if isinstance(number, int) and number:
        return f"its command was ended by signal {number}{_named(number)}"
    if isinstance(code, int):
        return f"its command exited with code {code}"
    return ""


def told_end(state: RequestState, result: Mapping[str, object]) -> str:
    """The end of a job for those who follow events: its state, and why unless it succeeded."""
    cause = "" if state is RequestState.SUCCEEDED else cause_of(result)
    return f"{state}: {cause}" if cause else state.value


def _named(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""


class Result(StrEnum):
    """What a dispatcher is told about a request."""

    SPAWNING = "spawning"
    READY = "ready"
    QUEUED = "queued"
    AT_CAPACITY = "at-capacity"
    NO_BACKEND = "no-backend"
    SKIPPED = "skipped"
    FAILED = "failed"


class WaitCode(StrEnum):
    """Why a request waits, for machines; the sentence beside it is for people."""

    UNDECIDED = "undecided"
    AT_CAPACITY = "at-capacity"
    NO_BACKEND = "no-backend"
    NO_MACHINE = "no-machine"
    BACKOFF = "backoff"
    PAUSED = "paused"
    DRAINING = "draining"
    INVALID = "invalid"


_Side = int | None
Kind = tuple[frozenset[str], frozenset[str], Role | None, bool, _Side, _Side, _Side, _Side]
"""What a decision looks at of a request, as plain values: equal for requests that are alike."""


def kind_of(
    labels: frozenset[str],
    exclude: frozenset[str],
    role: Role | None,
    declared: Resources,
    own_image: bool,
) -> Kind:
    """Flat, since it is looked up for every request of every decision."""
    requests, limits = declared.requests, declared.limits
    return (
        labels, exclude, role, own_image,
        requests.cpu_millis, requests.memory_bytes, limits.cpu_millis, limits.memory_bytes,
    )  # fmt: skip


class Waiting(NamedTuple):
    """A waiting request as a decision sees it; `declared` is what the job itself asks for."""

    job_id: str
    run_id: str
    labels: frozenset[str]
    exclude: frozenset[str] = frozenset()
    role: Role | None = None
    declared: Resources = Resources()
    image: str | None = None
    org: str | None = None
    priority: int = 0
    enqueued_at: datetime = datetime.min
    may_wait: bool = True
    routed_scaler: str | None = None
    wait_code: WaitCode = WaitCode.UNDECIDED
    wait_reason: str = ""

    @property
    def kind(self) -> Kind:
        """The same for requests that differ in nothing a decision looks at."""
        return kind_of(self.labels, self.exclude, self.role, self.declared, self.image is not None)
