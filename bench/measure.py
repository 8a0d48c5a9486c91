"""Samples and what they say: the whole distribution, never a mean.

Times are wall-clock seconds of the whole machine, servers included, unless a figure says that
it counts processor time.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

Prepared = TypeVar("Prepared")


class Unit(StrEnum):
    """What a sample is."""

    SECONDS = "s"
    PER_SECOND = "/s"
    EACH = "each"
    """A count for each thing done, such as commits a job."""
    BYTES = "B"


_CURVE = 200


@dataclass(frozen=True, slots=True)
class Distribution:
    """Where samples lie; all in the unit of the figure."""

    samples: int
    least: float
    p50: float
    p90: float
    p99: float
    most: float
    curve: tuple[float, ...] = ()
    """Samples in order, evenly many left out where they are more than a plot shows."""

    @classmethod
    def of(cls, samples: Sequence[float]) -> Distribution:
        """Percentiles are samples themselves (the nearest rank), so few samples invent none."""
        ordered = sorted(samples)

        def rank(share: float) -> float:
            return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

        return cls(
            len(ordered),
            ordered[0],
            rank(0.5),
            rank(0.9),
            rank(0.99),
            ordered[-1],
            tuple(rank(place / _CURVE) for place in range(1, _CURVE + 1)),
        )

    def at(self, share: float) -> float:
        """The percentile of that share, of those that are kept.

        Raises:
            KeyError: it is not one of them.
        """
        return {0.0: self.least, 0.5: self.p50, 0.9: self.p90, 0.99: self.p99, 1.0: self.most}[
            share
        ]


def timed(
    work: Callable[[Prepared], object],
    *,
    prepare: Callable[[], Prepared],
    repeats: int,
    warm_up: int,
) -> list[float]:
    """Seconds of each repetition of `work`; what `prepare` does before each is not counted.

    The first `warm_up` repetitions fill caches and are thrown away.
    """
    clocks = (time.perf_counter,)
    (taken,) = timed_by(clocks, work, prepare=prepare, repeats=repeats, warm_up=warm_up)
    return taken


def timed_by(
    clocks: Sequence[Callable[[], float]],
    work: Callable[[Prepared], object],
    *,
    prepare: Callable[[], Prepared],
    repeats: int,
    warm_up: int,
) -> list[list[float]]:
    """The same by several clocks at once; a list of samples for each."""
    taken: list[list[float]] = [[] for _ in clocks]
    for number in range(warm_up + repeats):
        prepared = prepare()
        if number == warm_up:
            # What stays for good is not looked through again in the middle of a sample.
            gc.collect()
            gc.freeze()
        begun = [clock() for clock in clocks]
        work(prepared)
        ended = [clock() for clock in clocks]
        if number >= warm_up:
            for samples, since, until in zip(taken, begun, ended, strict=True):
                samples.append(until - since)
    return taken


def timed_alone(work: Callable[[], object], *, repeats: int, warm_up: int) -> list[float]:
    """The same for work that needs nothing prepared."""
    return timed(lambda _: work(), prepare=lambda: None, repeats=repeats, warm_up=warm_up)
