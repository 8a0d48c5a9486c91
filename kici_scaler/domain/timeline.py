"""An agent's life as a sequence of phases, for whoever draws or lists it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

ORDER: Final = (
    "requested", "reserved", "spawning", "booting", "idle", "busy", "destroying", "quarantined",
    "gone",
)  # fmt: skip
"""Moments of a life in the order in which they are passed; equal times keep it."""

WORDS: Final[Mapping[str, str]] = {"requested": "waiting"}
"""What a phase is called, where that is not the name of the moment it begins at."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of a life; `is_open` says that it goes on."""

    name: str
    start: datetime
    end: datetime
    is_open: bool = False

    @property
    def seconds(self) -> float:
        """How long it took, or takes so far."""
        return (self.end - self.start).total_seconds()


def moments(timings: Mapping[str, object]) -> dict[str, datetime]:
    """The times at which states were entered, whether they come as text or as times."""
    return {
        name: at if isinstance(at, datetime) else datetime.fromisoformat(str(at))
        for name, at in timings.items()
    }


def phases(timings: Mapping[str, object], now: datetime) -> tuple[Phase, ...]:
    """The phases between known moments, the last of them open unless the agent is gone.

    Times come from one clock; should one nevertheless lie before the one it follows, its
    phase begins where the earlier one did, so that none is shorter than nothing.
    """
    known = moments(timings)
    rank = {name: place for place, name in enumerate(ORDER)}
    ordered = sorted(known, key=lambda name: (rank.get(name, len(ORDER)), known[name]))
    found: list[Phase] = []
    for place, name in enumerate(ordered):
        if name == "gone":
            break
        is_last = place + 1 == len(ordered)
        start = max(known[name], found[-1].end) if found else known[name]
        end = max(start, now if is_last else known[ordered[place + 1]])
        found.append(Phase(WORDS.get(name, name), start, end, is_open=is_last))
    return tuple(found)
