"""The floor of a gateway: a WebSocket server of the same library that only keeps connections.

Whatever it hears, it sends back.
"""

from __future__ import annotations

import asyncio

from websockets.asyncio.server import ServerConnection, serve

from kici_scaler.agent.protocol import MAX_MESSAGE_BYTES
from kici_scaler.gateway.serve import BACKLOG, PING_SECONDS


class BareServer:
    """A program for `Apart`; its settings are the gateway's."""

    def __init__(self) -> None:
        self._port = 0

    async def run(self) -> None:
        """Keep whoever connects, and ping it."""
        async with serve(
            _keep,
            "127.0.0.1",
            0,
            compression=None,
            max_size=MAX_MESSAGE_BYTES,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
            backlog=BACKLOG,
        ) as server:
            self._port = server.sockets[0].getsockname()[1]
            await asyncio.get_running_loop().create_future()

    def port(self) -> int:
        """Where it listens; 0 for not yet."""
        return self._port


async def _keep(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(message)
