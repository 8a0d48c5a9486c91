"""Applying a result although the database is away for a moment, or others are in the way."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from kici_scaler.store.engine import Contended, DatabaseUnreachable

Result = TypeVar("Result")
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 3.0


def persist(apply: Callable[[], Result], *, for_seconds: float) -> Result:
    """Call `apply` until the database takes it, with jittered pauses, for a bounded time.

    `apply` is guarded by its lease token, so repeating it after an unknown COMMIT is safe.

    Raises:
        DatabaseUnreachable, Contended: it did not take it in time; the lease's next holder
            finds out.
    """
    give_up = time.monotonic() + for_seconds
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return apply()
        except (DatabaseUnreachable, Contended):
            if time.monotonic() + pause > give_up:
                raise
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
