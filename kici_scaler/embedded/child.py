"""What a supervisor is told about a child, and what it tells about it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kici_scaler.embedded.process import Command, StopStep


class State(StrEnum):
    """Where a child is in its life."""

    STARTING = "starting"
    READY = "ready"
    PAUSING = "pausing"
    """It ended; the next start waits for the backoff."""
    FAILED = "failed"
    """Its very first start failed; it is not tried again."""
    STOPPED = "stopped"


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process to keep running.

    Attributes:
        name: what logs and messages call it.
        command: called before each start; may tidy what a crash left, may raise `KiciError`.
        is_ready: whether it does its work; polled after each start, must not block for long.
        once_ready: called after each start as soon as it is ready.
        ready_within: seconds a start may take.
        stop: signals to end it, each with its grace; SIGKILL follows.
        tier: children of higher tiers are stopped first, those of one tier together.
    """

    name: str
    command: Callable[[], Command]
    is_ready: Callable[[], bool]
    once_ready: Callable[[], None] = _nothing
    ready_within: float = 60.0
    stop: tuple[StopStep, ...] = (StopStep(signal.SIGTERM, 10.0),)
    tier: int = 0


class Listener(Protocol):
    """Hears what children write and what becomes of them; called from several threads."""

    def line(self, name: str, text: str) -> None:
        """A line that the child wrote."""

    def event(self, name: str, text: str) -> None:
        """What the supervisor saw or did."""
