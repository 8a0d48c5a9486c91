"""A job between its agent and the database: offer, accept, start, finish.

Crash table: see the use cases `finish` and `register`. What the gateway itself holds
(an offer made, an answer on its way) is lost with it and said again after the agent has
registered anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import ParamSpec, TypeVar

import redis
import structlog

from kici_scaler.agent.codec import Malformed, from_plain, loads_object, to_plain
from kici_scaler.agent.protocol import (
    CloseCode,
    JobCancel,
    JobFinishedAck,
    JobOffer,
    JobPayload,
    JobResult,
    JobStart,
    JobStatus,
)
from kici_scaler.broker.log_stream import LogEntry
from kici_scaler.gateway.core import TRANSIENT, Gateway
from kici_scaler.gateway.lines import clean
from kici_scaler.gateway.link import LinkClosed
from kici_scaler.gateway.session import TAIL_LINES, Session
from kici_scaler.sealing import Envelope, SealingError, open_envelope
from kici_scaler.service import finish

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
TAIL_CHARACTERS = 4_096
"""A line kept with the outcome is cut to this."""
ERROR_CHARACTERS = 4_096
STREAM_SECONDS = 1.0
"""For a look at the live log; without an answer the job goes on without it."""

P = ParamSpec("P")
T = TypeVar("T")


class UnusablePayload(Exception):
    """What was sealed is not a job."""


def open_payload(gateway: Gateway, sealed: Mapping[str, object]) -> JobPayload:
    """The job in a sealed payload.

    Raises:
        UnusablePayload: it does not open, or is no job; the message says which.
    """
    try:
        plain = open_envelope(gateway.keys, Envelope.from_json(sealed))
        payload = from_plain(JobPayload, loads_object(plain), "payload")
    except (SealingError, Malformed, UnicodeDecodeError) as problem:
        raise UnusablePayload(f"the job's payload cannot be used: {problem}") from problem
    if not payload.command:
        raise UnusablePayload("the job's payload cannot be used: payload.command is empty")
    return payload


class JobDesk:
    """What is done about the job of one session; every method is a step of that session."""

    __slots__ = ("_gateway", "_session")

    def __init__(self, gateway: Gateway, session: Session) -> None:
        self._gateway = gateway
        self._session = session

    async def offer(self, job_id: str, run_id: str) -> None:
        """Offer a job; what the agent answers comes as a message."""
        session = self._session
        session.offered_job = job_id
        session.offered_at = asyncio.get_running_loop().time()
        session.origin = replace(session.origin, job_id=job_id, run_id=run_id)
        await session.link.say(JobOffer(job_id, run_id))

    async def accepted(self, job_id: str) -> None:
        """Commit the job to this agent, then hand over what it shall run."""
        session = self._session
        sealed = await self._insist(
            finish.accept, self._gateway.runtime, agent_id=session.agent_id, job_id=job_id
        )
        if sealed is None:
            await session.link.say(JobCancel(job_id, "the job is no longer this agent's"))
            return
        session.running = job_id
        try:
            payload = open_payload(self._gateway, sealed)
        except UnusablePayload as problem:
            log.warning("job cannot start", agent=session.agent_id, job=job_id, why=str(problem))
            await self.fail(job_id, str(problem))
            await session.link.say(JobCancel(job_id, str(problem)))
            return
        await session.link.say(JobStart(job_id, payload))

    async def declined(self, job_id: str, reason: str) -> None:
        """The job goes elsewhere; one that was started already cannot, so it fails."""
        session = self._session
        if session.running == job_id:
            await self.fail(job_id, f"the agent does not have the job any more: {reason}")
            return
        await self._insist(
            finish.decline,
            self._gateway.runtime,
            agent_id=session.agent_id,
            job_id=job_id,
            reason=clean(reason, 200),
        )

    async def finished(self, job_id: str, result: JobResult) -> None:
        """Store the result, then acknowledge it; the agent keeps it until then."""
        session = self._session
        session.finishing = True
        if not await self._store_result(job_id, result, agent_knows=True):
            await session.link.close(
                CloseCode.PROTOCOL_VIOLATION, f"there is no job {job_id[:200]}"
            )
            return
        session.done_job = job_id
        if session.single_use:
            session.over_at = asyncio.get_running_loop().time()
        else:
            session.begin_anew()
        await session.link.say(JobFinishedAck(job_id))

    async def fail(self, job_id: str, why: str) -> None:
        """End a job that its agent never ran, with the cause."""
        await self._store_result(job_id, JobResult(JobStatus.ERROR, 0, 0, error=why))

    async def left(self, reason: str) -> None:
        """The agent goes of its own accord."""
        await self._insist(
            finish.leave,
            self._gateway.runtime,
            agent_id=self._session.agent_id,
            reason=clean(reason, 200),
            connection_number=self._session.connection,
        )

    async def _store_result(
        self, job_id: str, result: JobResult, *, agent_knows: bool = False
    ) -> bool:
        session = self._session
        error = None if result.error is None else clean(result.error, ERROR_CHARACTERS)
        stored = await self._insist(
            finish.finish,
            self._gateway.runtime,
            agent_id=session.agent_id,
            job_id=job_id,
            result=to_plain(replace(result, error=error)),
            log_tail=await self._tail(job_id),
            by_its_gateway=agent_knows,
        )
        if stored:
            end = LogEntry(job_id, max(session.seq, 0), "agent", (), last=True)
            self._gateway.feed.put(session.agent_id, end)
        return stored

    async def _tail(self, job_id: str) -> list[str]:
        session = self._session
        lines = list(session.tail or ())
        if session.resumed and len(lines) < TAIL_LINES:
            try:
                async with asyncio.timeout(STREAM_SECONDS):
                    lines = [
                        *await self._gateway.stream.tail(session.agent_id, job_id, TAIL_LINES)
                    ] or lines
            except (redis.RedisError, OSError, TimeoutError):
                log.debug("live log not reachable", agent=session.agent_id)
        return [clean(line, TAIL_CHARACTERS) for line in lines]

    async def _insist(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call until the database took it; the agent waits, connected.

        Raises:
            LinkClosed: the agent is gone; it says it again when it is back.
        """
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await self._gateway.threads.channel(partial(call, *args, **kwargs))
            except TRANSIENT as error:
                if self._session.gone or self._gateway.stopping.is_set():
                    raise LinkClosed from error
                log.warning("not stored yet", agent=self._session.agent_id, error=str(error))
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
