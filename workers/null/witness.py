"""What the null backend's history says about the system that called it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Event(StrEnum):
    """What the history tells of."""

    HALF_MADE = "half-made"
    STARTED = "started"
    TAKEN_OVER = "taken-over"
    REFUSED = "refused"
    """A call with an older lease token came."""
    ENDED = "ended"
    """By itself, as a test wanted."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the history; `at` in epoch seconds, `caller_pid` the process that called."""

    number: int
    at: float
    event: Event
    agent_id: str
    job_id: str | None
    token: int
    caller_pid: int


@dataclass(frozen=True, slots=True)
class Doubled:
    """Something of which two existed at one moment."""

    subject: str
    """An agent id or a job id."""
    agents: tuple[str, ...]


def doubled(history: Sequence[Entry]) -> tuple[Doubled, ...]:
    """What that history shows two of at one moment, or an agent started more than once ever."""
    running: dict[str, set[str]] = {}
    started: set[str] = set()
    found: list[Doubled] = []
    for entry in history:
        at_once = running.setdefault(entry.job_id or "", set())
        if entry.event is Event.STARTED:
            if entry.agent_id in started:
                found.append(Doubled(entry.agent_id, (entry.agent_id,)))
            started.add(entry.agent_id)
            at_once.add(entry.agent_id)
            if entry.job_id and len(at_once) > 1:
                found.append(Doubled(entry.job_id, tuple(sorted(at_once))))
        if entry.event in (Event.ENDED, Event.STOPPED):
            at_once.discard(entry.agent_id)
    return tuple(found)
