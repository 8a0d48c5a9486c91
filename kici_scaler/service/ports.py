"""What the use cases need from outside the database, as small interfaces.

Nothing said through a port is ever relied on: a hint that is lost is repeated by the
sweep, a mutex that is lost costs a little contention.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

from kici_scaler.store.warm import Bound


class Step(StrEnum):
    """What a backend worker may be asked to look at."""

    START = "start"
    DESTROY = "destroy"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step is done: the workers of a backend type on a machine (None: any)."""

    backend_type: str
    machine_id: str | None


class Patience(Enum):
    """How long to try for the mutex. It rests after each holder, so that requests gather."""

    NONE = "once, and not while it rests"
    COLLECTING = "for a moment, but not while it rests"
    AT_ONCE = "for a moment, and whether it rests or not"


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of trying for the mutex.

    Attributes:
        is_mine: whether it was got; None when that is not known.
        rests_for: seconds until it has rested, where it is that which was in the way.
    """

    is_mine: bool | None
    rests_for: float = 0.0


class Hints(Protocol):
    """Says that rows are ready; never raises, never blocks for long."""

    def step(self, step: Step, places: Iterable[Place]) -> None:
        """Some rows at these places are ready for a step; one hint covers them all."""

    def inspect(self, place: Place, agent_ids: Sequence[str]) -> None:
        """Somebody at that place should look whether these still run."""

    def admit(self, *, soon: bool = False) -> None:
        """Requests may be decided; `soon` collects several wishes into one pass."""

    def admit_left(self, turn: Turn) -> bool:
        """Requests were stored while others decided; whether somebody will see them shortly."""

    def fill(self, *, soon: bool = False) -> None:
        """Warm pools may be filled; `soon` collects several wishes into one pass."""

    def wake_gateways(self, gateways: Iterable[tuple[str, str]]) -> None:
        """Gateways (incarnation, agent id) have something to tell an agent."""

    def offer(self, offers: Iterable[Bound]) -> None:
        """Gateways have a job to offer to an agent."""


class Mutex(Protocol):
    """Keeps contention off the database; whether it was got decides nothing."""

    def held(self, patience: Patience = Patience.AT_ONCE) -> AbstractContextManager[Turn]:
        """Try, then go on either way."""


class NoHints:
    """Rows alone; the sweep finds them."""

    def step(self, step: Step, places: Iterable[Place]) -> None:
        return None

    def inspect(self, place: Place, agent_ids: Sequence[str]) -> None:
        return None

    def admit(self, *, soon: bool = False) -> None:
        return None

    def admit_left(self, turn: Turn) -> bool:
        return False

    def fill(self, *, soon: bool = False) -> None:
        return None

    def wake_gateways(self, gateways: Iterable[tuple[str, str]]) -> None:
        return None

    def offer(self, offers: Iterable[Bound]) -> None:
        return None
