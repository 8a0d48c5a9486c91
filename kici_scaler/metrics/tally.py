"""What this process has counted and not stored yet."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Mapping

from kici_scaler.metrics.metric import Metric

Entry = tuple[Metric, tuple[str, ...]]


class Tally:
    """Adds up; any thread may."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: defaultdict[Entry, float] = defaultdict(float)

    def add(self, metric: Metric, *labels: str, n: float = 1) -> None:
        """So many more, under these values of its labels."""
        metric.check(labels)
        with self._lock:
            self._counted[metric, labels] += n

    def take(self) -> dict[Entry, float]:
        """Everything counted since the last time; from now on it is the taker's to store."""
        with self._lock:
            taken = {entry: n for entry, n in self._counted.items() if n}
            self._counted.clear()
        return taken

    def give_back(self, taken: Mapping[Entry, float]) -> None:
        """It could not be stored: keep it for the next time."""
        with self._lock:
            for entry, n in taken.items():
                self._counted[entry] += n

    def forget(self) -> None:
        """Start anew, in a process that was forked: what was counted is its parent's."""
        self._lock = threading.Lock()
        self._counted.clear()


TALLY = Tally()
"""The tally of this process."""
os.register_at_fork(after_in_child=TALLY.forget)


def count(metric: Metric, *labels: str, n: float = 1) -> None:
    """Count in this process; stored within seconds where a `Bookkeeper` runs."""
    TALLY.add(metric, *labels, n=n)
