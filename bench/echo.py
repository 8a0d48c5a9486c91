"""A short text there and back over a WebSocket whose ends are both in this process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve


@asynccontextmanager
async def connected() -> AsyncIterator[ClientConnection]:
    """A connection to a server that sends back whatever it hears."""

    async def send_back(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message)

    async with serve(send_back, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"ws://127.0.0.1:{port}"
        async with connect(url, compression=None, ping_interval=None) as socket:
            yield socket


async def there_and_back(socket: ClientConnection) -> float:
    """Seconds of one."""
    begun = time.perf_counter()
    await socket.send("x" * 100)
    await socket.recv()
    return time.perf_counter() - begun
