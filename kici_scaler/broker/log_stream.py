"""Live log lines: one capped Redis stream an agent, gone some time after its last line.

Redis may lose all of it; the last lines are also kept on the agent's outcome.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio

from config.celery_settings import KEY_PREFIX

TTL_SECONDS: Final = 6 * 3600
MOST_ENTRIES: Final = 2_000
MOST_CHARACTERS: Final = 32 << 20
"""About what one stream holds; larger entries leave room for fewer."""
START: Final = "0-0"
"""The position before everything."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The lines of one `log` message: consecutive, of one stream (stdout, stderr or agent).

    `seq` counts the messages of a job. `position` is where to go on reading; it is empty
    for an entry that was not stored yet. An entry that is `last` has no lines: the job's
    result is stored and nothing follows.
    """

    job_id: str
    seq: int
    stream: str
    lines: tuple[str, ...]
    position: str = ""
    last: bool = False


def key_of(agent_id: str) -> str:
    """The key of an agent's stream."""
    return f"{KEY_PREFIX}logs:{agent_id}"


def open_client(url: str) -> redis.asyncio.Redis:
    """A client for `LogStream`; answers have the shape of the older protocol."""
    return redis.asyncio.Redis.from_url(
        url, protocol=2, socket_connect_timeout=2, socket_timeout=10, health_check_interval=10
    )


class LogStream:
    """Reads and writes the streams of all agents through one client."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()

    async def append(self, entries: Iterable[tuple[str, LogEntry]]) -> None:
        """Append entries (agent id, entry) in order, in one round trip.

        Raises:
            redis.RedisError: Redis did not answer; some may have been appended.
        """
        touched: set[str] = set()
        async with self._client.pipeline(transaction=False) as pipeline:
            for agent_id, entry in entries:
                key = key_of(agent_id)
                pipeline.xadd(key, _fields(entry), maxlen=_most_like(entry), approximate=True)
                touched.add(key)
            for key in touched:
                pipeline.expire(key, TTL_SECONDS)
            await pipeline.execute()

    async def after(
        self, agent_id: str, position: str = START, *, wait_seconds: float = 0.0, most: int = 100
    ) -> list[LogEntry]:
        """Entries past a position, oldest first; waits for the first one if there is none.

        Raises:
            redis.RedisError: Redis did not answer.
        """
        block = int(wait_seconds * 1000) or None
        streams: Any = {key_of(agent_id): position}
        found: Any = await self._client.xread(streams, count=most, block=block)
        return [_entry(stored) for _, entries in found or () for stored in entries]

    async def last_seq(self, agent_id: str, job_id: str) -> int:
        """The highest `seq` stored of a job; 0 without any.

        Raises:
            redis.RedisError: Redis did not answer.
        """
        newest: Any = await self._client.xrevrange(key_of(agent_id), count=1)
        entries = [_entry(each) for each in newest]
        return next((each.seq for each in entries if each.job_id == job_id), 0)

    async def tail(self, agent_id: str, job_id: str, lines: int) -> tuple[str, ...]:
        """The last lines of a job, oldest first.

        Raises:
            redis.RedisError: Redis did not answer.
        """
        newest: Any = await self._client.xrevrange(key_of(agent_id), count=lines)
        entries = reversed([_entry(each) for each in newest])
        found = [line for each in entries if each.job_id == job_id for line in each.lines]
        return tuple(found[-lines:])


def _most_like(entry: LogEntry) -> int:
    """How many entries of this size a stream may hold."""
    size = sum(len(line) for line in entry.lines)
    return min(MOST_ENTRIES, MOST_CHARACTERS // max(1, size))


def _fields(entry: LogEntry) -> dict[Any, Any]:
    return {
        "job": entry.job_id,
        "seq": entry.seq,
        "stream": entry.stream,
        "lines": json.dumps(entry.lines, ensure_ascii=False),
        "last": int(entry.last),
    }


def _entry(stored: Any) -> LogEntry:
    position, fields = stored
    return LogEntry(
        job_id=fields[b"job"].decode(),
        seq=int(fields[b"seq"]),
        stream=fields[b"stream"].decode(),
        lines=tuple(json.loads(fields[b"lines"])),
        position=position.decode(),
        last=fields[b"last"] == b"1",
    )
