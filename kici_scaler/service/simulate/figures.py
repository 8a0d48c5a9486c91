"""What a simulation came to, as figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kici_scaler.service.simulate.course import Course, Sample


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds from the request to the start of the job."""

    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    most: float = 0.0

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Waits:
        """Of every job that ran; percentiles by nearest rank."""
        if not seconds:
            return cls()
        found = sorted(seconds)

        def rank(share: float) -> float:
            return found[max(0, math.ceil(share * len(found)) - 1)]

        return cls(sum(found) / len(found), rank(0.5), rank(0.9), rank(0.99), found[-1])


@dataclass(frozen=True, slots=True)
class CapFigures:
    """One cap: how many jobs waited for it, and for how long all together."""

    cap: str
    jobs: int
    job_seconds: float


@dataclass(frozen=True, slots=True)
class ScalerFigures:
    """One scaler: jobs it served, how many of them by a warm agent, and its waits."""

    scaler: str
    jobs: int
    warm_hits: int
    peak_agents: int
    waits: Waits


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that is told of one simulation; times in seconds, memory in bytes."""

    jobs: int
    served: int
    unserved: dict[str, int]
    """Jobs that never ran, by the reason."""
    waits: Waits
    warm_hits: int
    busy_seconds: float
    idle_seconds: float
    """How long agents of warm pools stood ready, all together."""
    idle_cpu_seconds: float
    peak_agents: int
    peak_cpu_millis: int
    peak_memory_bytes: int
    peak_waiting: int
    lasted_seconds: float
    caps: tuple[CapFigures, ...]
    scalers: tuple[ScalerFigures, ...]

    @property
    def hit_rate(self) -> float:
        """The share of the jobs that ran for which a warm agent was ready."""
        return self.warm_hits / self.served if self.served else 0.0


def figures_of(course: Course) -> Figures:
    """Add it all up."""
    assert course.agents is not None, "a course that was run has agents"
    assert course.demand is not None, "and demand"
    served = [each for each in course.fates if each.ended is not None]
    left = Counter(each.reason for each in course.fates if each.ended is None)
    hits = course.demand.hits
    return Figures(
        jobs=len(course.fates),
        served=len(served),
        unserved=dict(left.most_common()),
        waits=Waits.of(_waits(course)),
        warm_hits=sum(each.was_hit for each in served),
        busy_seconds=sum(each.job.seconds for each in served),
        idle_seconds=course.agents.idle_seconds,
        idle_cpu_seconds=course.agents.idle_cpu_seconds,
        peak_agents=_peak(course.samples, "agents"),
        peak_cpu_millis=_peak(course.samples, "cpu_millis"),
        peak_memory_bytes=_peak(course.samples, "memory_bytes"),
        peak_waiting=_peak(course.samples, "waiting"),
        lasted_seconds=course.samples[-1].at - course.fates[0].job.at if course.fates else 0.0,
        caps=tuple(
            CapFigures(cap, hit.jobs, hit.job_seconds)
            for cap, hit in sorted(hits.items(), key=lambda each: -each[1].job_seconds)
        ),
        scalers=tuple(_scaler(course, name) for name in sorted(course.peaks)),
    )


def _waits(course: Course, scaler: str | None = None) -> list[float]:
    return [
        each.wait
        for each in course.fates
        if each.wait is not None and (scaler is None or each.scaler == scaler)
    ]


def _scaler(course: Course, name: str) -> ScalerFigures:
    mine = [each for each in course.fates if each.scaler == name and each.ended is not None]
    return ScalerFigures(
        scaler=name,
        jobs=len(mine),
        warm_hits=sum(each.was_hit for each in mine),
        peak_agents=course.peaks[name],
        waits=Waits.of(_waits(course, name)),
    )


def _peak(samples: Sequence[Sample], what: str) -> int:
    return max((int(getattr(each, what)) for each in samples), default=0)
