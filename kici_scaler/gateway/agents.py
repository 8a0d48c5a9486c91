"""The agent channel: one reader for each connection, everything else on demand."""

from __future__ import annotations

import asyncio
from typing import Final

import redis
import structlog

from kici_scaler.agent.protocol import (
    CloseCode,
    ConfigAck,
    FromAgent,
    JobAccepted,
    JobDeclined,
    JobFinished,
    JobPhase,
    Leaving,
    Log,
    ProtocolViolation,
    UnknownMessage,
    decode_from_agent,
)
from kici_scaler.broker.log_stream import LogEntry
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.gateway import log_context
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.introduction import Introduced, NotWelcome, acknowledgement, introduce
from kici_scaler.gateway.jobs import STREAM_SECONDS, JobDesk
from kici_scaler.gateway.limits import AGENT_BYTES, AGENT_MESSAGES, TokenBucket
from kici_scaler.gateway.lines import clean, enrich
from kici_scaler.gateway.link import Event, Link, LinkClosed, Receive, Send
from kici_scaler.service import register
from kici_scaler.service.hello import Welcome

log = structlog.get_logger(__name__)

LONGEST_SLOWDOWN: Final = 5.0
"""Seconds a flooding agent is not read at a time; pings must still be answered in between."""


async def serve_agent(gateway: Gateway, scope: Event, receive: Receive, send: Send) -> None:
    """One connection of the agent channel, as an ASGI application."""
    log_context.begin_connection(scope)
    try:
        await _serve(gateway, scope, receive, send)
    finally:
        log_context.end()


async def _serve(gateway: Gateway, scope: Event, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    client = scope.get("client")
    link = Link(receive, send, client[0] if client else "")
    try:
        if gateway.stopping.is_set():
            raise NotWelcome(CloseCode.GOING_AWAY, "this gateway stops; come back")
        introduced = await introduce(gateway, link)
    except NotWelcome as end:
        await link.close(end.code, str(end))
        return
    except ProtocolViolation as problem:
        await link.close(CloseCode.PROTOCOL_VIOLATION, str(problem))
        return
    except LinkClosed:
        return
    await _stay(gateway, introduced)


async def _stay(gateway: Gateway, introduced: Introduced) -> None:
    session = introduced.session
    link = session.link
    older = gateway.sessions.put(session)
    try:
        if introduced.incarnation != gateway.incarnation:
            await link.close(CloseCode.REFUSED_FOR_NOW, "this gateway started over; come back")
        if older is not None:
            gateway.spawn(older.link.close(CloseCode.SUPERSEDED, "a newer connection took over"))
        await link.say(acknowledgement(gateway, introduced.welcome))
        await Conversation(gateway, introduced).listen()
    except LinkClosed:
        pass
    except ProtocolViolation as problem:
        log.warning("agent broke the protocol", agent=session.agent_id, problem=str(problem))
        await link.close(CloseCode.PROTOCOL_VIOLATION, str(problem))
    finally:
        gateway.part(session)


class Conversation:
    """What a registered agent says, and what follows from it."""

    def __init__(self, gateway: Gateway, introduced: Introduced) -> None:
        self._gateway = gateway
        self._introduced: Introduced | None = introduced
        self._session = introduced.session
        self._desk = JobDesk(gateway, introduced.session)
        now = asyncio.get_running_loop().time()
        self._messages = TokenBucket(AGENT_MESSAGES, now)
        self._bytes = TokenBucket(AGENT_BYTES, now)

    async def listen(self) -> None:
        """Act on messages until the socket closes.

        Raises:
            LinkClosed: it did.
            ProtocolViolation: the agent said something it may not.
        """
        while True:
            text = await self._session.link.text()
            await self._slow_down(len(text))
            try:
                message = decode_from_agent(text)
            except UnknownMessage as problem:
                log.info("message not understood", agent=self._session.agent_id, why=str(problem))
                continue
            await self._heed(message)

    async def _slow_down(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        owed = max(self._messages.take(1, now), self._bytes.take(size, now))
        if owed > 0:
            await asyncio.sleep(min(owed, LONGEST_SLOWDOWN))

    async def _heed(self, message: FromAgent) -> None:
        session, desk = self._session, self._desk
        match message:
            case Log():
                await self._log(message)
            case ConfigAck():
                self._configured()
            case JobAccepted(job_id=job_id):
                session.do(f"accept {job_id}", lambda: desk.accepted(job_id))
            case JobDeclined(job_id=job_id, reason=reason):
                session.do(f"decline {job_id}", lambda: desk.declined(job_id, reason))
            case JobFinished(job_id=job_id, result=result):
                session.do(f"finish {job_id}", lambda: desk.finished(job_id, result))
            case Leaving(reason=reason):
                if not session.over_at:
                    session.do("leave", lambda: desk.left(reason))
            case _:
                raise ProtocolViolation(f"{message.type} after register")

    def _configured(self) -> None:
        """The agent is ready: it is told how things stand between it and its job."""
        introduced, self._introduced = self._introduced, None
        if introduced is None:
            raise ProtocolViolation("config.ack twice")
        session, desk, welcome = self._session, self._desk, introduced.welcome
        session.ready = True
        if welcome.has_metadata:
            self._gateway.spawn(self._tell_machine(welcome))
        job_id, run_id = welcome.job_id, welcome.run_id or ""
        if job_id is None:
            # A job it was given since it registered could not be offered before this.
            self._gateway.look_after(session.agent_id)
            return
        if welcome.state is not SpawnState.BUSY:
            session.do(f"offer {job_id}", lambda: desk.offer(job_id, run_id))
            return
        claim = introduced.said.job
        if claim is None or claim.job_id != job_id:
            why = "the agent came back without its job: what became of it is not known"
            session.do(f"fail {job_id}", lambda: desk.fail(job_id, why))
        elif claim.phase is JobPhase.ACCEPTED:
            session.do(f"accept {job_id}", lambda: desk.accepted(job_id))

    async def _tell_machine(self, welcome: Welcome) -> None:
        gateway = self._gateway
        await gateway.threads.channel(register.configured, gateway.runtime, welcome)

    async def _log(self, message: Log) -> None:
        session, gateway = self._session, self._gateway
        if message.job_id != session.running:
            return
        if session.seq < 0:
            session.seq = await self._seq_so_far(message.job_id)
        if message.seq <= session.seq:
            return
        session.seq = message.seq
        lines = tuple(clean(line) for line in message.lines)
        session.keep(lines)
        for line in lines:
            gateway.lines.put(enrich(line, session.origin))
        entry = LogEntry(message.job_id, message.seq, message.stream.value, lines)
        gateway.feed.put(session.agent_id, entry)

    async def _seq_so_far(self, job_id: str) -> int:
        """What another connection of this agent delivered already."""
        if not self._session.resumed:
            return 0
        try:
            async with asyncio.timeout(STREAM_SECONDS):
                return await self._gateway.stream.last_seq(self._session.agent_id, job_id)
        except (redis.RedisError, OSError, TimeoutError):
            return 0
