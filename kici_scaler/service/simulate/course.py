"""All that happens in a simulation, as it is written down."""

from __future__ import annotations

from dataclasses import dataclass, field

from kici_scaler.service.simulate.agents import Agents
from kici_scaler.service.simulate.demand import Demand, Fate


@dataclass(frozen=True, slots=True)
class Sample:
    """How things stood from a moment on."""

    at: float
    waiting: int
    agents: int
    idle: int
    cpu_millis: int
    memory_bytes: int


@dataclass(slots=True)
class Course:
    """All that happened."""

    fates: list[Fate] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    agents: Agents | None = None
    demand: Demand | None = None
    peaks: dict[str, int] = field(default_factory=dict)
    """The most agents that each scaler had at once."""
