"""A connection on which no request comes to anything is not kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.asyncio.client import connect

from kici_scaler.gateway import heads
from kici_scaler.gateway.heads import TimedHeads

REQUEST = b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n"
SOON, NEVER = 0.05, 3_600.0
LONG = 60.0

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test hurries is hurried, or a slow machine would end the rest as well."""
    monkeypatch.setattr(heads, "HEAD_SECONDS", NEVER)


class Served:
    """A server whose application tells whether its connection still waits for a head."""

    def __init__(self) -> None:
        self.connections: list[TimedHeads] = []

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with yes or no."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
        said = "yes" if self.connections[-1]._overdue else "no"
        if scope["type"] == "websocket":
            await send({"type": "websocket.send", "text": said})
        else:
            await PlainTextResponse(said)(scope, receive, send)

    @asynccontextmanager
    async def at(self) -> AsyncIterator[tuple[str, int]]:
        """Its address while it serves."""
        config = uvicorn.Config(
            self.app,
            interface="asgi3",
            http=TimedHeads,
            ws="websockets-sansio",
            lifespan="off",
            log_config=None,
        )
        config.load()
        state = ServerState()

        def connect_one() -> TimedHeads:
            self.connections.append(TimedHeads(config, state, {}))
            return self.connections[-1]

        loop = asyncio.get_running_loop()
        server = await loop.create_server(connect_one, "127.0.0.1", 0)
        async with server, asyncio.timeout(LONG):
            yield server.sockets[0].getsockname()


def _with_connection(talk: Talk) -> None:
    async def run() -> None:
        async with Served().at() as address:
            reader, writer = await asyncio.open_connection(*address)
            await talk(reader, writer)
            writer.close()

    asyncio.run(run())


async def _expect_no_waiting(reader: asyncio.StreamReader) -> None:
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert await reader.readexactly(2) == b"no"


@pytest.mark.parametrize("said", [b"", b"GET / HT", REQUEST[:-2]])
def test_a_head_that_does_not_come_in_time_ends_the_connection(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS", SOON)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        assert await reader.read() == b""

    _with_connection(talk)


def test_an_answer_may_take_longer_than_a_head() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(REQUEST)
            await _expect_no_waiting(reader)

    _with_connection(talk)


def test_a_further_request_has_to_come_to_its_end_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST)
        await _expect_no_waiting(reader)
        monkeypatch.setattr(heads, "HEAD_SECONDS", SOON)
        writer.write(b"GET / HT")
        assert await reader.read() == b""

    _with_connection(talk)


def test_a_connection_that_became_a_websocket_is_left_alone() -> None:
    async def run() -> None:
        async with Served().at() as (host, port), connect(f"ws://{host}:{port}/") as client:
            assert await client.recv() == "no"

    asyncio.run(run())
