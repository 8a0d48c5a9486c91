"""Agents that no scaler made: whom they serve, and what their absence or slowness means.

They have no size of their own and stay for further jobs, so the shape a job declares
says nothing about them; their labels and their gate decide alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kici_scaler.domain.prespawned import Misfit, Prespawned, misfit
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.routing import Wanted
from kici_scaler.domain.windows import Windows

GROUP = "agents that no scaler made"
"""What they are called together, where a scaler's name would stand."""


@dataclass(frozen=True, slots=True)
class StaticAgent:
    """One that is connected; `free` is whether it may be offered a job now."""

    agent_id: str
    labels: frozenset[str]
    gate: frozenset[str]
    free: bool


def serves(agent: StaticAgent, wanted: Wanted) -> bool:
    """Whether such a job may be offered to this agent.

    A job that brings its own image needs an agent that was started in it.
    """
    like = Prespawned("", "", agent.labels, agent.gate, None)
    return misfit(like, wanted) in (None, Misfit.SHAPE)


@dataclass(frozen=True, slots=True)
class Offer:
    """This request gets an agent that no scaler made."""

    request: Waiting
    agent_id: str


class StaticStock:
    """The static agents of one decision; each is given away once."""

    __slots__ = ("_agents", "_taken")

    def __init__(self, agents: Iterable[StaticAgent]) -> None:
        self._agents = tuple(agents)
        self._taken: set[str] = set()

    def supply(self, wanted: Wanted) -> StaticSupply | None:
        """Who serves such a job, free or not; None when no agent does."""
        fitting = [each for each in self._agents if serves(each, wanted)]
        return StaticSupply(fitting, self._taken) if fitting else None


class StaticSupply:
    """The static agents that serve one kind of job."""

    __slots__ = ("_free", "_taken", "count")

    def __init__(self, fitting: Iterable[StaticAgent], taken: set[str]) -> None:
        found = list(fitting)
        self.count = len(found)
        self._free = [each.agent_id for each in reversed(found) if each.free]
        self._taken = taken

    def take(self) -> str | None:
        """A free one that nobody got yet."""
        while self._free:
            agent_id = self._free.pop()
            if agent_id not in self._taken:
                self._taken.add(agent_id)
                return agent_id
        return None

    @property
    def why_not(self) -> str:
        """Why a job that only these serve waits."""
        return f"all {self.count} connected agents that serve it are occupied, and no scaler does"


@dataclass(frozen=True, slots=True)
class StaticDue:
    """A job of a static agent whose time has come to be looked at, by the database's clock."""

    agent_id: str
    job_id: str
    running: bool
    past_deadline: bool
    seconds_absent: float | None
    """How long nobody has seen the agent; None while it is connected, infinite if it left."""
    adopter_dead: bool
    gateway: str | None
    """Where the agent is connected."""
    cancelled: bool = False
    """It runs and was called off: the deadline is that of stopping it."""


_NOT_STOPPED = "its agent did not stop it in time"


class Verdict(StrEnum):
    """What becomes of such a job."""

    KEEP = "keep"
    TELL = "tell"
    """Its gateway should look what it owes the agent."""
    PART = "part"
    """Agent and job part: the job waits again, or fails if it ran."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with the sentence that becomes the job's error."""

    verdict: Verdict
    why: str = ""
    for_absence: bool = False
    """The brake on many absences at once may withhold it."""


def judge_static(due: StaticDue, windows: Windows, *, observing: bool, in_grace: bool) -> Judgement:
    """What to do about one due job; as for spawns, who could not observe does not judge."""
    if due.seconds_absent is None:
        return _judge_present(due, observing)
    if math.isinf(due.seconds_absent):
        return Judgement(Verdict.PART, "its agent left")
    if not observing or in_grace:
        return Judgement(Verdict.KEEP)
    if due.cancelled and due.past_deadline:
        return Judgement(Verdict.PART, _NOT_STOPPED)
    allowed = windows.flap_grace_seconds if due.adopter_dead else windows.stranded_timeout_seconds
    if due.seconds_absent >= allowed:
        why = f"its agent was not seen for {int(due.seconds_absent)} s"
        return Judgement(Verdict.PART, why, for_absence=True)
    if not due.running and due.past_deadline:
        why = "its agent went away and did not accept it in time"
        return Judgement(Verdict.PART, why, for_absence=True)
    return Judgement(Verdict.KEEP)


def _judge_present(due: StaticDue, observing: bool) -> Judgement:
    if not due.past_deadline or not observing:
        return Judgement(Verdict.TELL)
    if due.cancelled:
        return Judgement(Verdict.PART, _NOT_STOPPED)
    if due.running:
        return Judgement(Verdict.PART, "it ran longer than any job may")
    return Judgement(Verdict.PART, "its agent did not accept it in time")
