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
HEAD_SECONDS = 0.1
LONG = 20.0

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS", HEAD_SECONDS)


async def _slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers after longer than a head may take."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
    await asyncio.sleep(3 * HEAD_SECONDS)
    if scope["type"] == "websocket":
        await send({"type": "websocket.send", "text": "done"})
    else:
        await PlainTextResponse("done")(scope, receive, send)


@asynccontextmanager
async def _served() -> AsyncIterator[tuple[str, int]]:
    config = uvicorn.Config(
        _slow, http=TimedHeads, ws="websockets-sansio", lifespan="off", log_config=None
    )
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: TimedHeads(config, state, {}), "127.0.0.1", 0
    )
    async with server, asyncio.timeout(LONG):
        yield server.sockets[0].getsockname()


def _with_connection(talk: Talk) -> None:
    async def run() -> None:
        async with _served() as address:
            reader, writer = await asyncio.open_connection(*address)
            await talk(reader, writer)
            writer.close()

    asyncio.run(run())


async def _expect_answer(reader: asyncio.StreamReader) -> None:
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert await reader.readexactly(4) == b"done"


@pytest.mark.parametrize("said", [b"", b"GET / HT", REQUEST[:-2]])
def test_a_head_that_does_not_come_in_time_ends_the_connection(said: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        assert await reader.read() == b""

    _with_connection(talk)


def test_an_answer_may_take_longer_than_a_head() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(REQUEST)
            await _expect_answer(reader)

    _with_connection(talk)


def test_a_further_request_has_to_come_to_its_end_as_well() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST)
        await _expect_answer(reader)
        writer.write(b"GET / HT")
        assert await reader.read() == b""

    _with_connection(talk)


def test_a_connection_that_became_a_websocket_is_left_alone() -> None:
    async def run() -> None:
        async with _served() as (host, port), connect(f"ws://{host}:{port}/") as client:
            assert await client.recv() == "done"

    asyncio.run(run())
