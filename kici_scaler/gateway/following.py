"""A log as it comes: from the live stream while there is one, else what was kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import redis
import structlog

from kici_scaler.broker.log_stream import START, LogEntry
from kici_scaler.domain.spawn import ENDING
from kici_scaler.gateway.core import TRANSIENT, Gateway
from kici_scaler.gateway.errors import HttpError
from kici_scaler.service import operate
from kici_scaler.service.runtime import Runtime

log = structlog.get_logger(__name__)

MOST_FOLLOWERS: Final = 200
LOOK_SECONDS: Final = 2.0
"""Between two looks at the rows while nothing comes."""
START_SECONDS: Final = 0.3
"""The same while there is no agent yet."""
KEEP_ALIVE_SECONDS: Final = 10.0
"""A blank line is sent when there was nothing else for so long."""


class FollowingBroken(Exception):
    """This gateway stops: the answer breaks off, so that its reader asks another one."""


@dataclass(frozen=True, slots=True)
class Stand:
    """What is known of a followed log's source; `agent_id` None: there is none yet."""

    is_over: bool
    agent_id: str | None


Look = Callable[[Runtime], Stand]


def of_job(job_id: str) -> Look:
    """Follows a job, on whichever agent it runs."""

    def look(runtime: Runtime) -> Stand:
        found = operate.job_stand(runtime, job_id)
        return Stand(found.is_over, found.agent_id)

    return look


def of_agent(agent_id: str) -> Look:
    """Follows an agent, until it is being torn down."""

    def look(runtime: Runtime) -> Stand:
        live = operate.story(runtime, agent_id).live
        return Stand(live is None or live.state in ENDING, agent_id)

    return look


async def records(
    gateway: Gateway, look: Look, *, job_id: str | None, after: int, follow: bool
) -> AsyncIterator[str]:
    """JSON lines `{seq, stream, lines}`, until the source is over.

    Args:
        job_id: leave out what belongs to other jobs.
        after: leave out records up to this `seq`.
        follow: False ends with what there is now.

    Raises:
        NotFound: there is no such source; only before the first record.
        HttpError: too many followers.
    """
    first = await gateway.threads.http(look, gateway.runtime)
    if gateway.followers >= MOST_FOLLOWERS:
        raise HttpError(429, "too-many-followers", "too many logs are followed", retry_after=5)
    return _Following(gateway, look, job_id, after, follow).run(first)


class _Following:
    def __init__(
        self, gateway: Gateway, look: Look, job_id: str | None, after: int, follow: bool
    ) -> None:
        self._gateway = gateway
        self._look = look
        self._job_id = job_id
        self._after = after
        self._follow = follow
        self._position = START
        self._is_ended = False
        self._sent_any = False
        self._sent_at = asyncio.get_running_loop().time()

    async def run(self, stand: Stand) -> AsyncIterator[str]:
        self._gateway.followers += 1
        try:
            async for line in self._lines(stand):
                yield line
        finally:
            self._gateway.followers -= 1

    async def _lines(self, stand: Stand) -> AsyncIterator[str]:
        while True:
            is_last_look = stand.is_over or not self._follow
            batch = await self._read(stand.agent_id, wait=not is_last_look)
            for line in self._records(batch):
                yield line
            if self._is_ended or (is_last_look and not batch):
                break
            if not batch:
                stand = await self._look_again(stand)
            if (blank := self._keep_alive()) is not None:
                yield blank
        if not self._sent_any and self._after == 0 and stand.agent_id is not None:
            async for line in self._kept(stand.agent_id):
                yield line

    async def _read(self, agent_id: str | None, *, wait: bool) -> list[LogEntry]:
        if self._gateway.stopping.is_set():
            raise FollowingBroken
        if agent_id is None:
            await asyncio.sleep(START_SECONDS if wait else 0)
            return []
        try:
            return await self._gateway.stream.after(
                agent_id, self._position, wait_seconds=LOOK_SECONDS if wait else 0
            )
        except (redis.RedisError, OSError) as error:
            log.warning("live log not reachable", agent=agent_id, error=str(error))
            await asyncio.sleep(LOOK_SECONDS if wait else 0)
            return []

    def _records(self, batch: list[LogEntry]) -> list[str]:
        found = []
        for entry in batch:
            self._position = entry.position
            if self._job_id is not None and entry.job_id != self._job_id:
                continue
            if entry.last:
                self._is_ended = self._job_id is not None
            elif entry.seq > self._after:
                found.append(_record(entry.seq, entry.stream, entry.lines))
        if found:
            self._sent_any = True
            self._sent_at = asyncio.get_running_loop().time()
        return found

    async def _look_again(self, stand: Stand) -> Stand:
        try:
            found = await self._gateway.threads.http(self._look, self._gateway.runtime)
        except TRANSIENT:
            return stand
        if found.agent_id != stand.agent_id:
            self._position = START
        return found

    def _keep_alive(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if now < self._sent_at + KEEP_ALIVE_SECONDS:
            return None
        self._sent_at = now
        return "\n"

    async def _kept(self, agent_id: str) -> AsyncIterator[str]:
        """The last lines that the outcome kept, when the live stream is gone."""
        lines = await self._gateway.threads.http(
            operate.kept_lines, self._gateway.runtime, agent_id
        )
        if lines:
            yield _record(1, "stdout", lines)


def _record(seq: int, stream: str, lines: tuple[str, ...]) -> str:
    return json.dumps({"seq": seq, "stream": stream, "lines": lines}) + "\n"
