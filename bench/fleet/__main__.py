"""`python -m bench.fleet SOCKET`: play every agent that the socket names, until killed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from kici_scaler.agent.protocol import (
    PROTOCOL_VERSION,
    ConfigAck,
    Facts,
    JobAccepted,
    JobFinished,
    JobFinishedAck,
    JobOffer,
    JobResult,
    JobStart,
    JobStatus,
    Register,
    RegisterAck,
    Shutdown,
    decode_from_gateway,
    encode,
)

FACTS = Facts("linux", "x64", "bench", os.getpid(), "0")
DONE = JobResult(JobStatus.SUCCEEDED, started_at=1, finished_at=2, exit_code=0)
MOST_ORDERS_BYTES = 1 << 20


async def play(order: dict[str, object]) -> None:
    """One agent from its connection to its leave; its job takes no time."""
    with suppress(ConnectionClosed):
        async with connect(str(order["url"]), compression=None, ping_interval=None) as link:
            await link.send(encode(_introduction(order)))
            await _converse(link)


async def _converse(link: ClientConnection) -> None:
    async for text in link:
        message = decode_from_gateway(text)
        match message:
            case RegisterAck():
                await link.send(encode(ConfigAck()))
            case JobOffer(job_id=job_id):
                await link.send(encode(JobAccepted(job_id)))
            case JobStart(job_id=job_id):
                await link.send(encode(JobFinished(job_id, DONE)))
            case JobFinishedAck() | Shutdown():
                return


def _introduction(order: dict[str, object]) -> Register:
    labels = order["labels"]
    assert isinstance(labels, list)
    return Register(
        protocol=PROTOCOL_VERSION,
        agent_id=str(order["agentId"]),
        labels=tuple(labels),
        connection=1,
        facts=FACTS,
        token=str(order["token"]),
    )


async def serve(path: Path) -> None:
    """Take orders from the socket and play each of them at once."""
    loop = asyncio.get_running_loop()
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MOST_ORDERS_BYTES)
    inbox.setblocking(False)
    inbox.bind(str(path))
    playing: set[asyncio.Task[None]] = set()
    while True:
        order = json.loads(await loop.sock_recv(inbox, 65_536))
        task = loop.create_task(play(order))
        playing.add(task)
        task.add_done_callback(playing.discard)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
