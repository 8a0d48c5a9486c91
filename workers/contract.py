"""What every backend does, and the plain data that goes in and comes out.

A backend makes compute for agents, finds it again and takes it away. `docs/backends.md`
tells how to write one; the conformance suite checks one.

What every call keeps:

- **Deadline.** It returns or raises by its `Deadline`; nothing in it waits without one.
- **Safe to repeat.** The same call made twice, at once or after a crash in the middle of the
  first, has the effect of one call.
- **One name, one compute.** What `spawn` makes is named after the agent id, and making it is
  atomic per name: however many processes try at once, there is one.
- **The fence.** A name remembers the highest lease token that touched it, also after
  `destroy`. A call that brings a lower one raises `NotOwner` and does nothing.
- **Self-describing.** What exists carries installation, scaler, agent, job and run, so that
  `inventory` needs nothing but the machine itself.
- **Secrets.** The agent's token appears in no name, label, argument list, record or log.
- **Errors.** Only those of `workers.errors` are raised; they say what may be concluded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from kici_scaler.domain.scalers import Amount, LabelSet, Scaler
from workers.addresses import AddressBook
from workers.compute import ComputeRef, ExitCause, ExitKind, FoundCompute, SpawnedCompute
from workers.credentials import RegistryCredentials
from workers.machine import Machine

__all__ = [
    "CAPTURED_LINES",
    "Backend",
    "BackendContext",
    "BackendFactory",
    "ComputeRef",
    "Deadline",
    "ExitCause",
    "ExitKind",
    "Finding",
    "FoundCompute",
    "LifecycleEvent",
    "LifecycleKind",
    "RegistryCredentials",
    "Severity",
    "SpawnOrder",
    "SpawnedCompute",
    "failure_detail",
]

CAPTURED_LINES = 50
"""How many lines of captured output go with a failure; the reference's number."""


def _no_text() -> Mapping[str, str]:
    return MappingProxyType({})


def _no_options() -> Mapping[str, object]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of this process's monotonic clock, in seconds, by which a call must end."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self.at - time.monotonic())

    @property
    def has_passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining == 0.0

    def within(self, seconds: float) -> Deadline:
        """This deadline or the one `seconds` from now, whichever comes first."""
        return min(self, Deadline.after(seconds), key=lambda each: each.at)


class LifecycleKind(StrEnum):
    """What may be told of a compute on its way up; the last two are not certainties."""

    PROVISIONING = "scaler.provisioning"
    NETWORK = "scaler.network"
    READY = "scaler.ready"
    FAILED = "scaler.failed"
    CONNECTING = "agent.connecting"


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """One step of a spawn, for dispatchers and their users."""

    kind: LifecycleKind
    detail: str
    timestamp_ms: int
    """Epoch milliseconds at emission."""

    @classmethod
    def now(cls, kind: LifecycleKind, detail: str) -> LifecycleEvent:
        """The event that happens at this moment."""
        return cls(kind, detail, time.time_ns() // 1_000_000)


def _always_wanted() -> bool:
    return True


def _unheard(_event: LifecycleEvent) -> None:
    return None


@dataclass(frozen=True, slots=True)
class SpawnOrder:
    """Everything a backend needs to make one agent's compute.

    `environment` is what the worker forwards to agents (`KICI_AGENT_ENV_*`, prefix
    stripped); the label set's own `env` wins over it. `options` are the scaler's own
    options, as the revision of the row has them. `agent_token` is the one secret; it is
    empty when the agent redeems a claim instead.
    """

    installation_id: str
    scaler: str
    agent_id: str
    lease_token: int
    label_set: LabelSet
    gateway_url: str
    agent_token: str = field(repr=False)
    labels: tuple[str, ...] = ()
    job_id: str | None = None
    run_id: str | None = None
    limits: Amount = field(default_factory=Amount)
    job_image: str | None = None
    """The container image the job brings along; its agent then runs in that."""
    registry: RegistryCredentials | None = field(default=None, repr=False)
    """What the job's image is pulled with; erased with the order."""
    environment: Mapping[str, str] = field(default_factory=_no_text, repr=False)
    options: Mapping[str, object] = field(default_factory=_no_options)
    still_wanted: Callable[[], bool] = field(default=_always_wanted, repr=False, compare=False)
    """Asked before each step that makes something; False means stop, and undo."""
    report: Callable[[LifecycleEvent], None] = field(default=_unheard, repr=False, compare=False)
    """Told each step; it never raises."""

    def tell(self, kind: LifecycleKind, detail: str) -> None:
        """Report a step that is happening now."""
        self.report(LifecycleEvent.now(kind, detail))


class Severity(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    """Spawns of that scaler will fail."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer of `check`: about what, how bad, and what to do."""

    severity: Severity
    subject: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class BackendContext:
    """What a worker hands to each backend it opens.

    `state_dir` outlives the worker and is this machine's alone. `ambient` is the worker's
    environment: where a local backend takes the allow-listed variables from. `addresses` is the
    book of the machine's guest addresses; None where there is no database to keep it in.
    """

    installation_id: str
    machine: Machine
    state_dir: Path
    ambient: Mapping[str, str] = field(default_factory=_no_text, repr=False)
    addresses: AddressBook | None = field(default=None, repr=False)


class Backend(Protocol):
    """The eight calls. Instances are shared by threads and must allow for it."""

    def prepare(self, scalers: Sequence[Scaler], deadline: Deadline) -> None:
        """Make what the scalers of this type need once per machine (folders, networks).

        Called at start and after each change of the scaler file; changes nothing that a
        living compute uses.
        """

    def check(self, scalers: Sequence[Scaler], deadline: Deadline) -> tuple[Finding, ...]:
        """What of the scalers' needs is present or missing on this machine; changes nothing."""

    def spawn(self, order: SpawnOrder, deadline: Deadline) -> SpawnedCompute:
        """Make the agent's compute and return once it is started (not: once it registered).

        Found running from an earlier call of an equal or lower token, it is taken over as it
        is: the token rises, nothing is started twice, and the agent keeps the agent token it
        was started with. Found ended, `Permanent` with its last output.

        Raises:
            NotOwner, NotDone, OutcomeUnknown, Permanent.
        """

    def destroy(self, agent: ComputeRef, deadline: Deadline) -> None:
        """End the compute and remove what was made for it; return when it is confirmed gone.

        Nothing there is success. A later `spawn` with a lower token is refused.

        Raises:
            NotOwner: a call with a higher token was here.
            NotDone: the machine could not be asked, or its record cannot be read.
            OutcomeUnknown: it could not be confirmed in time; call again.
        """

    def inventory(self, installation_id: str, deadline: Deadline) -> tuple[FoundCompute, ...]:
        """All compute of that installation that is really there, ended but unremoved included.

        Raises:
            NotDone: the list could not be read in full; conclude nothing from it.
        """

    def reclaim(self, agent: ComputeRef, deadline: Deadline) -> bool:
        """Remove compute that no row stands for; whether there was any.

        Removes only what the machine's own artifacts say is this agent's of this
        installation. Raises as `destroy` does.
        """

    def logs(self, agent: ComputeRef, last_lines: int, deadline: Deadline) -> tuple[str, ...]:
        """The last lines the agent printed, oldest first; empty when nothing is kept.

        Raises:
            NotDone: the machine could not be asked.
        """

    def exit_cause(self, agent: ComputeRef, deadline: Deadline) -> ExitCause | None:
        """How the compute ended; None while it runs.

        Raises:
            NotDone: the machine could not be asked, so nothing is known.
        """


BackendFactory = Callable[[BackendContext], Backend]
"""What an entry point of the group `kici_scaler.backends` names."""


def failure_detail(message: str, log_tail: Sequence[str]) -> str:
    """The text of a `scaler.failed` event: the error, then the last captured lines if any."""
    tail = list(log_tail)[-CAPTURED_LINES:]
    return "\n".join([message, "--- captured output ---", *tail]) if tail else message
