"""One connection to a gateway: claim if need be, register, talk, close."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from kici_scaler.agent.conduct import Leave
from kici_scaler.agent.outbox import Outbox
from kici_scaler.agent.protocol import (
    MAX_MESSAGE_BYTES,
    Claim,
    ClaimResponse,
    CloseCode,
    ErrorNotice,
    FromGateway,
    Leaving,
    Log,
    ProtocolViolation,
    Register,
    RegisterAck,
    UnknownMessage,
    decode_from_gateway,
    encode,
)

log = logging.getLogger(__name__)

ANSWER_SECONDS = 30.0
"""For `claim.response` and `register.ack`; a gateway that is silent longer is given up."""
OPEN_SECONDS = 10.0
PING_SECONDS = 20.0
"""Between pings, and for each pong: a half-open connection is found within twice this."""
CLOSE_SECONDS = 2.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Closed:
    """How a connection ended. `code` is None when it broke or never opened."""

    code: int | None = None
    reason: str = ""
    registered: bool = False
    at_once: bool = False
    """The next connection need not wait."""


class NotNow(Exception):
    """The gateway could not answer; asking again later may help."""


class Host(Protocol):
    """What a connection asks of the agent."""

    outbox: Outbox

    def url(self) -> str:
        """The gateway to connect to."""

    def claim_code(self) -> str | None:
        """The code to redeem before anything else; None when the agent knows who it is."""

    def claimed(self, answer: ClaimResponse) -> None:
        """Take over the identity a claim code was exchanged for.

        Raises:
            AgentFailure: the code is worth nothing.
            NotNow: the gateway could not tell.
        """

    def greeting(self) -> Register:
        """The `register` of this connection, with a number no earlier one had."""

    def registered(self, ack: RegisterAck) -> None:
        """A gateway knows this agent; whoever nobody wants may leave from now on."""

    def heard(self, message: FromGateway) -> None:
        """Act on a message."""

    def disconnected(self) -> None:
        """The connection is over, or never was."""

    async def leaving(self) -> Leave:
        """Wait for the moment to leave."""


async def converse(host: Host) -> Closed:
    """Connect, talk until either side closes, and say how it ended; never raises for what
    a network or a gateway can do."""
    url = host.url()
    opening = connect(
        url,
        compression=None,
        proxy=None if _is_here(url) else True,
        open_timeout=OPEN_SECONDS,
        ping_interval=PING_SECONDS,
        ping_timeout=PING_SECONDS,
        close_timeout=CLOSE_SECONDS,
        max_size=MAX_MESSAGE_BYTES,
    )
    channel = _Channel(host)
    try:
        async with opening as socket:
            return await channel.talk(socket)
    except ConnectionClosed as end:
        code, reason = (end.rcvd.code, end.rcvd.reason) if end.rcvd else (None, "")
        return Closed(code, reason, channel.registered)
    except ProtocolViolation as problem:
        log.error("the gateway broke the protocol: %s", problem)
        return Closed(reason=str(problem), registered=channel.registered)
    except (OSError, WebSocketException, UnicodeError, ImportError, NotNow) as problem:
        return Closed(reason=f"{url}: {problem or 'timed out'}", registered=channel.registered)
    finally:
        host.disconnected()


def _is_here(url: str) -> bool:
    """Whether a gateway is on this very machine, where no proxy leads."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Channel:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._max_message_bytes = MAX_MESSAGE_BYTES
        self.registered = False

    async def talk(self, socket: ClientConnection) -> Closed:
        if not await self._introduce(socket):
            return Closed(at_once=True)
        receiving = asyncio.ensure_future(self._receive(socket))
        sending = asyncio.ensure_future(self._send(socket))
        leaving = asyncio.ensure_future(self._host.leaving())
        tasks = (receiving, sending, leaving)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                sending.cancel()
                await self._say_goodbye(socket, leaving.result())
                return Closed(registered=True)
            for task in (receiving, sending):
                if task.done():
                    await task
        finally:
            await _end(tasks)
        return Closed(registered=True)

    async def _introduce(self, socket: ClientConnection) -> bool:
        """Claim and register; False when the claim names another gateway to go to."""
        code = self._host.claim_code()
        if code is not None:
            here = self._host.url()
            await self._claim(socket, code)
            if self._host.url() != here:
                return False
        await socket.send(encode(self._host.greeting()))
        ack = await _answer(socket, RegisterAck, lambda _: True)
        self._max_message_bytes = min(MAX_MESSAGE_BYTES, ack.max_message_bytes)
        self._host.outbox.rewind()
        self.registered = True
        self._host.registered(ack)
        return True

    async def _claim(self, socket: ClientConnection, code: str) -> None:
        request_id = secrets.token_hex(8)
        await socket.send(encode(Claim(request_id, code)))
        answer = await _answer(socket, ClaimResponse, lambda each: each.request_id == request_id)
        self._host.claimed(answer)

    async def _receive(self, socket: ClientConnection) -> None:
        while True:
            message = await _hear(socket)
            if message is not None:
                self._host.heard(message)

    async def _send(self, socket: ClientConnection) -> None:
        outbox = self._host.outbox
        while True:
            message = await outbox.next(self._max_message_bytes)
            await socket.send(encode(message))
            if isinstance(message, Log):
                pong = asyncio.ensure_future(await socket.ping())
                pong.add_done_callback(partial(_confirm, outbox, message))

    async def _say_goodbye(self, socket: ClientConnection, leave: Leave) -> None:
        async with asyncio.timeout(CLOSE_SECONDS):
            for message in self._host.outbox.urgent():
                await socket.send(encode(message))
            if leave.reason is not None:
                await socket.send(encode(Leaving(leave.reason)))


def _confirm(outbox: Outbox, message: Log, pong: asyncio.Future[float]) -> None:
    if not pong.cancelled() and pong.exception() is None:
        outbox.confirm(message)


async def _hear(socket: ClientConnection) -> FromGateway | None:
    """The next message; None for one that is not for the agent to act on."""
    text = await socket.recv()
    try:
        message = decode_from_gateway(text)
    except UnknownMessage as problem:
        log.warning("%s; ignored", problem)
        return None
    except ProtocolViolation as problem:
        await socket.close(CloseCode.PROTOCOL_VIOLATION, str(problem)[:100])
        raise
    if isinstance(message, ErrorNotice):
        log.warning("the gateway says: %s (%s)", message.message, message.code)
        return None
    return message


async def _answer(
    socket: ClientConnection, kind: type[Answer], fits: Callable[[Answer], bool]
) -> Answer:
    """The first message of a kind; others before it are no use to an unregistered agent.

    Raises:
        TimeoutError: none came in time.
    """
    async with asyncio.timeout(ANSWER_SECONDS):
        while True:
            message = await _hear(socket)
            if isinstance(message, kind) and fits(message):
                return message


async def _end(tasks: tuple[asyncio.Future[None] | asyncio.Future[Leave], ...]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
