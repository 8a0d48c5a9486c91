"""Lifecycle events handed to whoever listens: a capped stream, and a task if one is named.

Both are hints: `GET /v1/events?after=` is canonical, and what a listener missed is there.

Crash table: `kill -9` between handing over and moving the cursor repeats a batch; events
carry their id, so a listener knows what it has seen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from kici_scaler.service.runtime import Runtime
from kici_scaler.store import duties, events
from kici_scaler.store.engine import transaction
from kici_scaler.store.events import EventRow

DUTY = "events.publish"
INTERVAL_SECONDS = 1.0
BATCH = 500
MOST_IN_ONE_TICK = 5_000
"""More than the busiest second brings; whatever is left comes with the next tick. So does what half
a second was not enough for: another tick in the middle of this one would begin where it began."""


class Listener(Protocol):
    """Takes events in order; False when it could not, and they should come again."""

    def take(self, batch: Sequence[EventRow]) -> bool:
        """Take a batch."""


def publish(runtime: Runtime, listener: Listener) -> int | None:
    """Hand over what was committed since the last time; None when another caller does it."""
    with transaction(runtime.engine) as connection:
        if not duties.claim_tick(connection, DUTY, interval_seconds=INTERVAL_SECONDS):
            return None
        batch = events.after(connection, duties.cursor(connection, DUTY), limit=BATCH)
    handed, give_up = 0, time.monotonic() + INTERVAL_SECONDS / 2
    while batch and listener.take(batch):
        handed += len(batch)
        with transaction(runtime.engine) as connection:
            duties.move_cursor(connection, DUTY, batch[-1].id)
            is_all = len(batch) < BATCH or handed >= MOST_IN_ONE_TICK
            is_all = is_all or time.monotonic() > give_up
            batch = [] if is_all else events.after(connection, batch[-1].id, limit=BATCH)
    return handed
