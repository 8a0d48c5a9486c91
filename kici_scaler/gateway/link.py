"""One WebSocket as the channel sees it: messages in and out, and one close."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from kici_scaler.agent.protocol import (
    CloseCode,
    ErrorNotice,
    FromAgent,
    FromGateway,
    ProtocolViolation,
    decode_from_agent,
    encode,
)

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]

SEND_SECONDS: Final = 10.0
"""An agent that takes nothing in for this long is given up."""


class LinkClosed(Exception):
    """The socket is closed, by whichever side."""


class Link:
    """A socket that was accepted."""

    __slots__ = ("_receive", "_send", "address", "closed")

    def __init__(self, receive: Receive, send: Send, address: str) -> None:
        self._receive = receive
        self._send = send
        self.address = address
        self.closed = False

    async def text(self) -> str:
        """The next text message.

        Raises:
            LinkClosed: there will be none.
            ProtocolViolation: it was binary.
        """
        event = await self._receive()
        if event["type"] == "websocket.disconnect":
            self.closed = True
            raise LinkClosed
        text = event.get("text")
        if text is None:
            raise ProtocolViolation("a binary message")
        return str(text)

    async def hear(self) -> FromAgent:
        """The next message.

        Raises:
            LinkClosed: there will be none.
            UnknownMessage, ProtocolViolation: see `decode_from_agent`.
        """
        return decode_from_agent(await self.text())

    async def say(self, message: FromGateway) -> None:
        """Send a message.

        Raises:
            LinkClosed: it cannot be sent (any more).
        """
        await self._put({"type": "websocket.send", "text": encode(message)})

    async def close(self, code: CloseCode | int, reason: str, *, notice: bool = True) -> None:
        """Close once; says `reason` in full before, since a close carries 123 bytes of it."""
        if self.closed:
            return
        try:
            if notice:
                name = code.name.lower().replace("_", "-") if isinstance(code, CloseCode) else ""
                await self.say(ErrorNotice(name or "internal", reason))
            event = {"type": "websocket.close", "code": int(code), "reason": _short(reason)}
            await self._put(event)
        except LinkClosed:
            return
        finally:
            self.closed = True

    async def _put(self, event: Event) -> None:
        if self.closed:
            raise LinkClosed
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send(event)
        except (OSError, TimeoutError) as error:
            self.closed = True
            raise LinkClosed from error


def _short(reason: str) -> str:
    """What fits into a close frame."""
    return reason.encode()[:120].decode(errors="ignore")
