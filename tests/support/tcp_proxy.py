"""A TCP proxy that breaks connections on command, for fault tests.

    with TcpProxy(("127.0.0.1", 5432)) as proxy:
        connection = psycopg2.connect(host=proxy.host, port=proxy.port, ...)
        proxy.requests = CutReply(b"COMMIT")  # the server commits, the client never hears

Requests (client to server) and replies have a treatment each, which may be changed at any time:
it holds for every byte read from then on, on open connections as on new ones. The proxy runs in
a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Self, TypeVar

from tests.support.treatments import Counts, Cut, CutReply, CutRequest, Delay, Mode, Treatment

__all__ = ["Counts", "CutReply", "CutRequest", "Delay", "Mode", "TcpProxy", "Treatment"]

_CHUNK: Final = 65536
_PATIENCE: Final = 10.0
"""Seconds the proxy's thread may take to carry out a command; it never waits on a peer."""

T = TypeVar("T")


@dataclass
class _Lane:
    """A treatment in force, with how many cuts are left of it (None: no end of them)."""

    treatment: Treatment
    left: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.treatment, Cut):
            self.left = self.treatment.times

    def take(self) -> bool:
        """Use one of the cuts, if any is left."""
        if self.left == 0:
            return False
        if self.left is not None:
            self.left -= 1
        return True


@dataclass(eq=False)
class _Connection:
    """A client and the server it talks to; lives in the proxy's thread."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    is_reply_cut: bool = False
    unmatched: bytes = b""

    def close(self, *, reset: bool = False) -> None:
        """Close both sides at once; what was not sent yet is lost."""
        for writer in (self.client, self.server):
            _close(writer, reset=reset)
        self.closed.set()

    def holds(self, pattern: bytes, chunk: bytes) -> bool:
        """Whether the request bytes up to this chunk hold the pattern, even one cut in two."""
        seen = self.unmatched + chunk
        self.unmatched = seen[max(0, len(seen) - len(pattern) + 1) :]
        return pattern in seen


def _close(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if reset:
        peer: socket.socket | None = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):  # the peer may have closed it meanwhile
            if peer is not None:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class TcpProxy:
    """Forwards `host:port` to the target until told to break it; a context manager.

    Attributes:
        target: host and port that connections are forwarded to; may be changed.
        host: where the proxy listens.
        port: likewise; free, and kept for the proxy while it refuses connections.
    """

    def __init__(self, target: tuple[str, int], *, host: str = "127.0.0.1") -> None:
        self.target = target
        self.host = host
        self._requests = _Lane(Mode.PASS)
        self._replies = _Lane(Mode.PASS)
        self._counts = Counts()
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind((host, 0))
        self.port: int = self._place.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._carry_out(self._shut())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE)
            self._loop.close()
            self._place.close()

    @property
    def requests(self) -> Treatment:
        """How bytes from clients are treated."""
        return self._requests.treatment

    @requests.setter
    def requests(self, treatment: Treatment) -> None:
        self._requests = _Lane(treatment)

    @property
    def replies(self) -> Treatment:
        """How bytes from the server are treated; patterns are looked for in requests only."""
        return self._replies.treatment

    @replies.setter
    def replies(self, treatment: Mode | Delay) -> None:
        self._replies = _Lane(treatment)

    @contextlib.contextmanager
    def treating(
        self, *, requests: Treatment = Mode.PASS, replies: Mode | Delay = Mode.PASS
    ) -> Iterator[None]:
        """These treatments for the length of a block; everything passes again after it."""
        self.requests, self.replies = requests, replies
        try:
            yield
        finally:
            self.requests = self.replies = Mode.PASS

    def refuse(self) -> None:
        """Refuse new connections, as a server that is down; open ones go on (see `drop`)."""
        self._carry_out(self._stop_listening())

    def listen(self) -> None:
        """Accept connections, again after `refuse`."""
        self._carry_out(self._start_listening())

    def drop(self, *, reset: bool = True) -> int:
        """End every open connection now, by RST or orderly; how many there were."""
        return self._carry_out(self._drop(reset=reset))

    @property
    def counts(self) -> Counts:
        """What happened so far."""
        return self._counts

    @property
    def open_connections(self) -> int:
        """How many clients are connected through to the server now."""
        return len(self._connections)

    def _carry_out(self, command: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(command, self._loop).result(_PATIENCE)

    async def _start_listening(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, self.host, self.port)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _drop(self, *, reset: bool) -> int:
        dropped = list(self._connections)
        for connection in dropped:
            connection.close(reset=reset)
        self._count(resets=len(dropped) if reset else 0)
        return len(dropped)

    async def _shut(self) -> None:
        await self._stop_listening()
        await self._drop(reset=False)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, requests: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self._count(accepted=1)
        if Mode.RESET in (self.requests, self.replies):
            self._count(resets=1)
            _close(client, reset=True)
            return
        try:
            replies, server = await asyncio.open_connection(*self.target)
        except OSError:
            self._count(unreachable=1)
            _close(client, reset=True)
            return
        connection = _Connection(client, server)
        self._connections.add(connection)
        await asyncio.gather(
            self._pump(requests, server, connection, self._pass_request),
            self._pump(replies, client, connection, self._pass_reply),
        )
        self._connections.discard(connection)
        connection.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: _Connection,
        treat: Callable[[_Connection, bytes], Awaitable[None]],
    ) -> None:
        try:
            while chunk := await reader.read(_CHUNK):
                await treat(connection, chunk)
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:  # one side is gone, so the other has nobody to talk to
            connection.close()

    async def _pass_request(self, connection: _Connection, chunk: bytes) -> None:
        lane = self._requests
        cut = lane.treatment
        if isinstance(cut, Cut) and connection.holds(cut.pattern, chunk) and lane.take():
            self._count(cuts=1)
            if isinstance(cut, CutRequest):
                connection.close()
                return
            connection.is_reply_cut = True
        if await self._lets_through(lane.treatment, connection, chunk):
            self._count(request_bytes=len(chunk))
            connection.server.write(chunk)
            await connection.server.drain()

    async def _pass_reply(self, connection: _Connection, chunk: bytes) -> None:
        if connection.is_reply_cut:
            connection.close()
        elif await self._lets_through(self.replies, connection, chunk):
            self._count(reply_bytes=len(chunk))
            connection.client.write(chunk)
            await connection.client.drain()

    async def _lets_through(
        self, treatment: Treatment, connection: _Connection, chunk: bytes
    ) -> bool:
        if treatment is Mode.RESET:
            self._count(resets=1)
            connection.close(reset=True)
        elif treatment is Mode.SWALLOW:
            self._count(swallowed_bytes=len(chunk))
        elif isinstance(treatment, Delay):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(connection.closed.wait(), treatment.seconds)
        return treatment not in (Mode.RESET, Mode.SWALLOW) and not connection.closed.is_set()

    def _count(self, **more: int) -> None:
        now = {name: getattr(self._counts, name) + number for name, number in more.items()}
        self._counts = replace(self._counts, **now)
