"""Whether a start is still wanted, without asking the rows more often than the answer changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kici_scaler.service import start
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.start import StartOrder
from kici_scaler.store.engine import DatabaseUnreachable

FRESH_SECONDS: Final = 0.25
"""How long an answer counts. Between any answer and what is made on it somebody may change his
mind all the same: the token fences that, and the row says so when it is applied. So asking spares
work that takes long, and is not worth a transaction for a start that comes to its step at once."""


@dataclass(slots=True)
class StillWanted:
    """Asked by a backend before each step of one start; that it was taken is the first answer."""

    runtime: Runtime = field(repr=False)
    order: StartOrder
    clock: Callable[[], float] = time.monotonic
    _wanted_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._wanted_at = self.order.taken_at

    def __call__(self) -> bool:
        """A database that cannot be asked is no reason to stop."""
        now = self.clock()
        if now < self._wanted_at + FRESH_SECONDS:
            return True
        try:
            is_wanted = start.still_wanted(self.runtime, self.order)
        except DatabaseUnreachable:
            return True
        if is_wanted:
            self._wanted_at = now
        return is_wanted
