"""What a machine remembers of each agent: the fence, and whether a creation was begun.

A container says itself what it is; this says what must still hold when there is none, also that
a creation was begun and may yet happen.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from workers import records
from workers.container.place import Place


@dataclass(frozen=True, slots=True)
class Record(records.Fenced):
    """What is remembered of one agent. Times in epoch seconds."""

    began_making_at: float | None = None
    """Since when a creation may be under way; None when none is."""
    has_begun: bool = False
    """A creation was begun at some time; without one, there never was a container."""
    place: Place | None = None
    is_isolated: bool = False
    """Network rules may stand for it."""

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """The record that was written as that."""
        return cls(**{**said, "place": Place.from_json(said["place"] or {})})

    def as_json(self) -> Mapping[str, Any]:
        """What is written of it."""
        return {**asdict(self), "place": self.place.as_json() if self.place else None}


Held = records.Held[Record]


class Records(records.FencedRecords[Record]):
    """The records in a folder of this machine's state."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Record)


def begin(held: Held, *, is_isolated: bool) -> None:
    """Note that a creation may happen from now on, whatever becomes of this process."""
    held.save(began_making_at=time.time(), has_begun=True, is_isolated=is_isolated)
