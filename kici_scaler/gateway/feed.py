"""Log lines on their way to Redis: gathered, appended together, dropped rather than waited for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import redis
import structlog

from kici_scaler.broker.log_stream import LogEntry, LogStream

log = structlog.get_logger(__name__)

MOST_WAITING: Final = 5_000
AT_ONCE: Final = 200
PAUSE_SECONDS: Final = 1.0
"""After Redis did not answer."""


class LogFeed:
    """Appends entries in the background, in order.

    Live lines are a convenience: when Redis is away or slow, the oldest waiting entries
    are given up and counted, and the job and its result are not touched.
    """

    def __init__(self, stream: LogStream) -> None:
        self._stream = stream
        self._waiting: deque[tuple[str, LogEntry]] = deque()
        self._wake = asyncio.Event()
        self.dropped = 0
        """Entries given up so far."""

    def put(self, agent_id: str, entry: LogEntry) -> None:
        """Append this soon; never waits."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append((agent_id, entry))
        self._wake.set()

    async def run(self) -> None:
        """Append what was put, until cancelled."""
        told = False
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
                try:
                    await self._stream.append(batch)
                    told = False
                except (redis.RedisError, OSError) as error:
                    self.dropped += len(batch)
                    if not told:
                        log.warning("live log lines are not kept", error=str(error))
                    told = True
                    await asyncio.sleep(PAUSE_SECONDS)

    async def flush(self) -> None:
        """Append what waits now, once; for an orderly stop."""
        batch = list(self._waiting)
        self._waiting.clear()
        if batch:
            try:
                await self._stream.append(batch)
            except (redis.RedisError, OSError):
                self.dropped += len(batch)
