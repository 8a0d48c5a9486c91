"""Agents that were started ahead of demand, and which jobs they may serve.

Such an agent serves a job only when it is exactly what the job would have been given: it
offers every label asked for, the job asks for its whole gate, and the shape the job
declares is the agent's own. What cannot be told does not serve.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kici_scaler.domain.labels import normalise
from kici_scaler.domain.resources import Shape, same_shape
from kici_scaler.domain.routing import Route, Wanted


class Misfit(StrEnum):
    """Why an agent that was started ahead of demand does not serve a job."""

    IMAGE = "image"
    """The job brings an image of its own, which needs an agent of its own."""
    LABELS = "labels"
    """It lacks a label that the job asks for."""
    EXCLUDED = "excluded"
    """It offers a label that the job excludes."""
    GATED = "gated"
    """The job does not ask for a label that it must ask for."""
    SHAPE = "shape"
    """The job declares another size, or the agent's cannot be told."""


@dataclass(frozen=True, slots=True)
class Prespawned:
    """What decides whom an agent without a job serves.

    Attributes:
        label_set: the identity of its label set (`labels.normalise`).
        labels: everything it may be asked for, derived labels included.
        shape: None when it cannot be told, as of an agent that no scaler made.
    """

    scaler: str
    label_set: str
    labels: frozenset[str]
    gate: frozenset[str]
    shape: Shape | None


def is_prespawned(*, warm: bool, job_id: str | None) -> bool:
    """Whether an agent was started ahead of demand and still has no job.

    Once it was given one it is an ordinary agent that serves that job alone.
    """
    return warm and job_id is None


def misfit(agent: Prespawned, wanted: Wanted) -> Misfit | None:
    """The first thing in the way of this agent serving such a job; None when nothing is."""
    asked = wanted.asked
    if wanted.own_image:
        return Misfit.IMAGE
    if not asked <= agent.labels:
        return Misfit.LABELS
    if asked and not wanted.exclude.isdisjoint(agent.labels):
        return Misfit.EXCLUDED
    if not agent.gate <= asked:
        return Misfit.GATED
    return None if same_shape(wanted.resources, agent.shape) else Misfit.SHAPE


def can_prespawned_serve(agent: Prespawned, wanted: Wanted) -> bool:
    """Whether this agent may be given such a job."""
    return misfit(agent, wanted) is None


@dataclass(frozen=True, slots=True)
class Ready:
    """Idle, connected agents that are alike: since when each idles, and its id; oldest first."""

    like: Prespawned
    agents: Sequence[tuple[datetime, str]]


@dataclass(frozen=True, slots=True)
class Taken:
    """One agent that a decision gave away."""

    like: Prespawned
    agent_id: str


class Stock:
    """The ready agents of one decision; each is given away once."""

    __slots__ = ("_kinds",)

    def __init__(self, ready: Iterable[Ready]) -> None:
        self._kinds = [(each.like, deque(each.agents)) for each in ready]

    def supply(self, wanted: Wanted, route: Route | None, closed: Collection[str]) -> Supply | None:
        """Who may serve such a job; None when nobody does.

        Args:
            closed: scalers that give no agents away at the moment.
        """
        fitting = [
            (like, agents)
            for like, agents in self._kinds
            if agents and like.scaler not in closed and can_prespawned_serve(like, wanted)
        ]
        return Supply(fitting, route) if fitting else None


class Supply:
    """The ready agents that may serve one kind of job."""

    __slots__ = ("_others", "_own")

    def __init__(
        self,
        fitting: Sequence[tuple[Prespawned, deque[tuple[datetime, str]]]],
        route: Route | None,
    ) -> None:
        own = None if route is None else (route.scaler.name, normalise(route.label_set.labels))
        self._own = [each for each in fitting if (each[0].scaler, each[0].label_set) == own]
        self._others = [each for each in fitting if (each[0].scaler, each[0].label_set) != own]

    def take(self) -> Taken | None:
        """The oldest of the label set that the job is routed to."""
        return _oldest(self._own)

    def take_other(self) -> Taken | None:
        """The oldest of the label sets that serve the job as well, but would not be chosen."""
        return _oldest(self._others)


def _oldest(kinds: Sequence[tuple[Prespawned, deque[tuple[datetime, str]]]]) -> Taken | None:
    able = [each for each in kinds if each[1]]
    if not able:
        return None
    like, agents = min(able, key=lambda each: each[1][0])
    return Taken(like, agents.popleft()[1])
