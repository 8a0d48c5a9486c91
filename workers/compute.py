"""One compute as the contract speaks of it: made, named, found, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType


def _no_options() -> Mapping[str, object]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SpawnedCompute:
    """What `spawn` made, or found already made by an earlier call for the same agent.

    `ref` goes into the spawn's row as JSON: what the backend wants to be told again by
    `destroy`, `logs` and `exit_cause`. It holds no secret.
    """

    name: str
    ref: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ComputeRef:
    """Which compute a call is about.

    `ref` is None when no spawn was ever recorded: the backend then finds the compute, if
    there is any, by the agent id. `lease_token` is the caller's own.
    """

    installation_id: str
    scaler: str
    agent_id: str
    lease_token: int
    ref: Mapping[str, str] | None = None
    options: Mapping[str, object] = field(default_factory=_no_options)


@dataclass(frozen=True, slots=True)
class FoundCompute:
    """One compute that is really there, told by its own artifacts alone.

    `lease_token` is the token it was made or last claimed with. `running` is False for
    what has ended, or was half made, and still needs `destroy`.
    """

    installation_id: str
    scaler: str
    agent_id: str
    job_id: str | None
    run_id: str | None
    lease_token: int
    running: bool
    created_at: datetime
    """By the machine's clock, in UTC."""
    name: str
    ref: Mapping[str, str]


class ExitKind(StrEnum):
    """Why a compute no longer runs."""

    EXITED = "exited"
    """It ended by itself; `exit_code` says how."""
    SIGNALLED = "signalled"
    """A signal that no `destroy` sent ended it; `signal` says which."""
    OUT_OF_MEMORY = "out-of-memory"
    """It was killed for passing its memory limit."""
    STOPPED = "stopped"
    """`destroy` or `reclaim` ended it."""
    START_FAILED = "start-failed"
    """It never ran: the operating system or runtime refused to start it."""
    VANISHED = "vanished"
    """It was there and is gone, and nothing tells how: a reboot, or a killed watcher."""
    ABSENT = "absent"
    """The machine certainly holds nothing of that name."""


@dataclass(frozen=True, slots=True)
class ExitCause:
    """How a compute ended.

    `spool` is the text of the result file that the agent had not yet delivered, where the
    backend can read it, so that an exit is not mistaken for a lost job. `with_machine`: the
    machine was restarted under it, which is no fault of its scaler's.
    """

    kind: ExitKind
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    log_tail: tuple[str, ...] = ()
    spool: str | None = None
    with_machine: bool = False
