"""The least that the steps of a warm hit cost: one of each part, as often as they are asked for.

A task to a worker and its answer back, a published wake-up, three transactions that write a row,
and a short text there and back over a WebSocket.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import redis
from redis.client import PubSub
from sqlalchemy import Engine

from bench import echo, floors
from bench.empty_tasks import EmptyTasks
from bench.place import Place

TRANSACTIONS = 3
PATIENCE_SECONDS = 5
_CHANNEL = "bench:wake"

T = TypeVar("T")


@dataclass(frozen=True)
class Parts:
    """All of them, ready to be done once more; each step tells the seconds it took."""

    steps: tuple[Callable[[], float], ...]

    def sample(self) -> float:
        """Seconds of one after the other, summed."""
        return sum(step() for step in self.steps)


@contextmanager
def parts(place: Place, tasks: EmptyTasks) -> Iterator[Parts]:
    """On the servers of a place, each part with its connections open."""
    with ExitStack() as stack:
        client = stack.enter_context(closing(redis.Redis.from_url(place.redis_url)))
        heard = stack.enter_context(client.pubsub())  # type: ignore[no-untyped-call]  # its own gap
        heard.subscribe(_CHANNEL)
        heard.get_message(timeout=PATIENCE_SECONDS)
        there_and_back = stack.enter_context(_echo())
        floors.make_row(place.engine)
        yield Parts((
            _timed(tasks.round_trip),
            _timed(lambda: _wake_up(client, heard)),
            _timed(lambda: _write(place.engine)),
            there_and_back,
        ))  # fmt: skip


def _timed(step: Callable[[], object]) -> Callable[[], float]:
    def timed() -> float:
        begun = time.perf_counter()
        step()
        return time.perf_counter() - begun

    return timed


def _wake_up(client: redis.Redis, heard: PubSub) -> None:
    client.publish(_CHANNEL, "x")
    while (found := heard.get_message(timeout=PATIENCE_SECONDS)) is None or (
        found["type"] != "message"
    ):
        pass


def _write(engine: Engine) -> None:
    for _ in range(TRANSACTIONS):
        floors.write_row(engine)


@contextmanager
def _echo() -> Iterator[Callable[[], float]]:
    """A WebSocket there and back; both ends in one thread, which tells the time."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_SECONDS)

    link = echo.connected()
    socket = run(link.__aenter__())
    try:
        yield lambda: run(echo.there_and_back(socket))
    finally:
        run(link.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
