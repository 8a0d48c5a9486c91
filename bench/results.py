"""What a run found, as plain data: one `Measured` a figure or floor, and JSON of all of it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import psutil

from bench.measure import Distribution, Unit


@dataclass(frozen=True, slots=True)
class Reach:
    """What a figure should come to, taken of its median unless it says otherwise.

    Attributes:
        bound: the number.
        of_floor: the bound is a multiple of the floor's median, not of the unit.
        at_least: more is better.
        share: of which percentile it is taken, of figure and floor alike.
    """

    bound: float
    of_floor: bool = False
    at_least: bool = False
    share: float = 0.5

    def is_met(self, value: float) -> bool:
        """Whether a median, or its ratio to the floor, is on the right side."""
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True, slots=True)
class Floor:
    """What the machine allows, measured right before and right after a figure."""

    name: str
    distribution: Distribution
    times: float = 1.0
    """How many of it the figure is held against (2,000 empty tasks for 1,000 requests)."""

    @property
    def median(self) -> float:
        """The floor's median, as often as it counts."""
        return self.at(0.5)

    def at(self, share: float) -> float:
        """A percentile of it, as often as it counts."""
        return self.distribution.at(share) * self.times


@dataclass(frozen=True, slots=True)
class Point:
    """Where the median of a figure stands in a plot of several: on which line, how far along."""

    plot: str
    line: str
    across: str
    at: float


@dataclass(frozen=True, slots=True)
class Course:
    """How something went over time while a figure was measured; points are (seconds, value)."""

    plot: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure of a run."""

    name: str
    what: str
    unit: Unit
    distribution: Distribution
    floor: Floor | None = None
    reach: Reach | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    point: Point | None = None
    course: Course | None = None

    @property
    def ratio(self) -> float | None:
        """Median over the floor's median, or the percentile that its reach is of."""
        share = 0.5 if self.reach is None else self.reach.share
        return None if self.floor is None else self.distribution.at(share) / self.floor.at(share)

    @property
    def is_reached(self) -> bool | None:
        """Whether it came to what it should; None when nothing is asked of it."""
        if self.reach is None:
            return None
        value = self.ratio if self.reach.of_floor else self.distribution.p50
        return None if value is None else self.reach.is_met(value)

    def as_json(self) -> dict[str, Any]:
        """With the ratio and the verdict worked out."""
        return {**asdict(self), "ratio": self.ratio, "reached": self.is_reached}


@dataclass(frozen=True, slots=True)
class Run:
    """One run on one machine."""

    machine: Mapping[str, object]
    figures: Sequence[Measured]

    def as_json(self) -> dict[str, Any]:
        """For a file, and for `compare`."""
        return {"machine": dict(self.machine), "figures": [each.as_json() for each in self.figures]}


def machine() -> dict[str, object]:
    """What the figures depend on besides the code, and how busy others kept the machine."""
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": psutil.cpu_count(),
        "memoryBytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "loadBefore": round(os.getloadavg()[0], 2),
        "versions": {
            name: version(name)
            for name in ("kici-scaler", "celery", "sqlalchemy", "psycopg2-binary")
        },
    }
