"""The geometry of what is drawn: bars of use, and the timeline of an agent.

Widths are percentages, so that a picture fits any column without a script or a style.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kici_scaler.domain.timeline import Phase

THINNEST: Final = 0.4
"""Percent of a picture's width below which a phase could not be seen."""
ROW: Final = 36
"""Height of a phase's row in a timeline, in pixels."""
FOOT: Final = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a bar; `kind` is what it shows, and so its colour."""

    kind: str
    x: float
    width: float
    about: str


@dataclass(frozen=True, slots=True)
class Bar:
    """Something used of something that there is; `about` says it in words."""

    segments: tuple[Segment, ...]
    about: str


@dataclass(frozen=True, slots=True)
class Row:
    """A phase of a timeline with its place."""

    phase: Phase
    y: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """An agent's life, a row a phase, on one scale from its first moment to its last."""

    rows: tuple[Row, ...]
    height: int
    seconds: float


def bar(parts: Iterable[tuple[str, float]], total: float, about: str) -> Bar:
    """A bar of parts (kind, amount) of a total; what is beyond the total is cut off."""
    segments: list[Segment] = []
    x = 0.0
    for kind, amount in parts:
        width = min(100.0 - x, 100.0 * amount / total) if total > 0 else 0.0
        if width > 0:
            segments.append(Segment(kind, round(x, 2), round(width, 2), f"{kind}: {amount:g}"))
            x += width
    return Bar(tuple(segments), about)


def strip(found: Sequence[Phase], about: str) -> Bar:
    """A whole life in one line."""
    total = sum(phase.seconds for phase in found)
    return bar(((phase.name, phase.seconds) for phase in found), total, about)


def timeline(found: Sequence[Phase]) -> Timeline:
    """A life with a row for each phase; a phase too short to be seen is drawn a hair wide."""
    if not found:
        return Timeline((), FOOT, 0.0)
    start, total = found[0].start, (found[-1].end - found[0].start).total_seconds()
    rows = []
    for place, phase in enumerate(found):
        passed = (phase.start - start).total_seconds()
        width = max(THINNEST, 100.0 * phase.seconds / total) if total > 0 else 100.0
        x = min(100.0 * passed / total, 100.0 - width) if total > 0 else 0.0
        rows.append(Row(phase, place * ROW, round(max(0.0, x), 3), round(width, 3)))
    return Timeline(tuple(rows), len(rows) * ROW + FOOT, total)
