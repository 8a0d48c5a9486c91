"""Bounded threads for calls that wait for the database, apart by who would wait for whom."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

CHANNEL_THREADS: Final = 8
HTTP_THREADS: Final = 8
LIFE_THREADS: Final = 4
DATABASE_SESSIONS: Final = CHANNEL_THREADS + HTTP_THREADS + LIFE_THREADS
"""Every thread may hold one session at a time."""

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Runs blocking calls; a flood of one kind never takes the threads of another.

    `channel` serves agents, `http` callers, `life` the gateway's own heartbeat and polls.
    """

    def __init__(self) -> None:
        self._channel = CapacityLimiter(CHANNEL_THREADS)
        self._http = CapacityLimiter(HTTP_THREADS)
        self._life = CapacityLimiter(LIFE_THREADS)

    async def channel(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call on behalf of an agent."""
        return await to_thread.run_sync(partial(call, *args, **kwargs), limiter=self._channel)

    async def http(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call on behalf of an HTTP request."""
        return await to_thread.run_sync(partial(call, *args, **kwargs), limiter=self._http)

    async def life(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that keeps the gateway itself going."""
        return await to_thread.run_sync(partial(call, *args, **kwargs), limiter=self._life)
