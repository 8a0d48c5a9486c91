"""When a process that ended is started again: pure, times in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Doubling pauses between starts, from `first` to `longest`.

    Attributes:
        stable_after: a process that was ready for this long starts over with `first`.
    """

    first: float = 0.5
    longest: float = 30.0
    stable_after: float = 30.0

    def failures_after(self, failures: int, ready_for: float) -> int:
        """The count of failures in a row, once a process that was ready that long has ended."""
        return 1 if ready_for >= self.stable_after else failures + 1

    def pause(self, failures: int) -> float:
        """How long to wait after that many failures in a row."""
        doublings = min(max(failures, 1) - 1, 32)
        return min(self.longest, self.first * 2.0**doublings)
