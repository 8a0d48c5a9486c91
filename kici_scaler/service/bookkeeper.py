"""Stores what this process has counted, every few seconds, beside its work.

Crash table (`kill -9` at ...):
- any moment: what was counted since the last time is lost; nothing is stored twice.
- during COMMIT: unknown; it is counted as stored, so the counters may miss it, never double it.
"""

from __future__ import annotations

import threading
from typing import Self

import structlog
from sqlalchemy import Engine

from kici_scaler.metrics import TALLY, Tally
from kici_scaler.store import counts
from kici_scaler.store.counts import Count
from kici_scaler.store.engine import CommitUnknown, DatabaseUnreachable, transaction

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 5.0


class Bookkeeper:
    """A thread that stores a tally; a process has one, from after any fork until its end."""

    def __init__(
        self, engine: Engine, tally: Tally = TALLY, *, pause_seconds: float = PAUSE_SECONDS
    ) -> None:
        self._engine = engine
        self._tally = tally
        self._pause = pause_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="bookkeeper", daemon=True)

    def __enter__(self) -> Self:
        """Store from now on."""
        self._thread.start()
        return self

    def __exit__(self, *_details: object) -> None:
        """Store what is left and end."""
        self._over.set()
        self._thread.join()
        self.store()

    def store(self) -> None:
        """Store what was counted so far; with the database away it is kept for later."""
        taken = self._tally.take()
        if not taken:
            return
        rows = [Count(metric, labels, n) for (metric, labels), n in taken.items()]
        try:
            with transaction(self._engine) as connection:
                counts.add(connection, rows)
        except CommitUnknown as error:
            log.info("counts may not have been stored", error=str(error))
        except DatabaseUnreachable as error:
            self._tally.give_back(taken)
            log.info("counts kept until the database is back", error=str(error))

    def _work(self) -> None:
        while not self._over.wait(self._pause):
            try:
                self.store()
            except Exception:  # Counting must never end what is counted.
                log.exception("counts not stored")
