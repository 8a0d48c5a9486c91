"""Reads a command's output pipes into the outbox, and holds them back when it is full."""

from __future__ import annotations

import asyncio
import os

from kici_scaler.agent.lines import Backpressure, LineSplitter
from kici_scaler.agent.outbox import Outbox
from kici_scaler.agent.vocabulary import Stream


class _Pipe(asyncio.Protocol):
    def __init__(self, output: Output, stream: Stream) -> None:
        self._output = output
        self._stream = stream
        self._splitter = LineSplitter()
        self.transport: asyncio.ReadTransport | None = None
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._output.took(self._stream, self._splitter.feed(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._output.took(self._stream, self._splitter.finish())
        if not self.closed.done():
            self.closed.set_result(None)


class Output:
    """The two output pipes of one command."""

    def __init__(self, outbox: Outbox, mode: Backpressure) -> None:
        self._outbox = outbox
        self._may_pause = mode is Backpressure.PAUSE
        self._pipes: list[_Pipe] = []

    async def open(self) -> tuple[int, int]:
        """Make the pipes; returns the writing ends of stdout and stderr, to be closed by
        the caller once the command has them."""
        out, err = await self._pipe(Stream.STDOUT), await self._pipe(Stream.STDERR)
        return out, err

    def took(self, stream: Stream, lines: list[bytes]) -> None:
        """Lines came out of a pipe."""
        self._outbox.put(stream, lines)
        if self._may_pause and self._outbox.is_full:
            for pipe in self._pipes:
                if pipe.transport is not None and pipe.transport.is_reading():
                    pipe.transport.pause_reading()

    def resume(self) -> None:
        """The outbox has room again."""
        for pipe in self._pipes:
            transport = pipe.transport
            if transport is not None and not transport.is_closing() and not transport.is_reading():
                transport.resume_reading()

    async def drain(self, seconds: float) -> None:
        """Read what is left in the pipes of a command that is gone, without pause: it is at
        most what a pipe holds. A pipe still held open by something that would not die is
        left after `seconds`."""
        self._may_pause = False
        self.resume()
        if self._pipes:
            await asyncio.wait([pipe.closed for pipe in self._pipes], timeout=seconds)
        for pipe in self._pipes:
            if pipe.transport is not None:
                pipe.transport.close()
        if self._pipes:
            await asyncio.wait([pipe.closed for pipe in self._pipes])

    async def _pipe(self, stream: Stream) -> int:
        reading, writing = os.pipe()
        pipe = _Pipe(self, stream)
        self._pipes.append(pipe)
        file = os.fdopen(reading, "rb", 0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: pipe, file)
        return writing
