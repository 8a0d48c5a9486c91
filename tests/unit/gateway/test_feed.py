"""Live log lines never wait for Redis, and say so when they are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
import redis

from kici_scaler.broker.log_stream import LogEntry, LogStream
from kici_scaler.gateway import feed as module
from kici_scaler.gateway.feed import LogFeed


class Stream(LogStream):
    """Keeps what is appended, or refuses it."""

    def __init__(self) -> None:
        self.is_away = False
        self.appended: list[int] = []

    async def append(self, entries: Iterable[tuple[str, LogEntry]]) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            raise redis.ConnectionError("away")
        self.appended += [entry.seq for _, entry in entries]


def entry(seq: int) -> LogEntry:
    return LogEntry("j1", seq, "stdout", ("x",))


def test_entries_are_appended_in_order() -> None:
    async def work() -> list[int]:
        stream = Stream()
        feed = LogFeed(stream)
        running = asyncio.ensure_future(feed.run())
        for seq in range(500):
            feed.put("a1", entry(seq))
        while len(stream.appended) < 500:
            await asyncio.sleep(0)
        running.cancel()
        return stream.appended

    assert asyncio.run(asyncio.wait_for(work(), 10)) == list(range(500))


def test_without_redis_the_oldest_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)

    async def work() -> tuple[int, list[int]]:
        stream = Stream()
        feed = LogFeed(stream)
        for seq in range(15):
            feed.put("a1", entry(seq))
        await feed.flush()
        return feed.dropped, stream.appended

    assert asyncio.run(work()) == (5, list(range(5, 15)))


def test_a_refused_batch_is_counted_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0)

    async def work() -> tuple[int, list[int]]:
        stream = Stream()
        feed = LogFeed(stream)
        stream.is_away = True
        running = asyncio.ensure_future(feed.run())
        feed.put("a1", entry(1))
        while not feed.dropped:
            await asyncio.sleep(0)
        stream.is_away = False
        feed.put("a1", entry(2))
        while not stream.appended:
            await asyncio.sleep(0)
        running.cancel()
        return feed.dropped, stream.appended

    assert asyncio.run(asyncio.wait_for(work(), 10)) == (1, [2])
