"""An asyncio program in a process of its own, which its maker asks how things stand."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol, Self

from kici_scaler.gateway.descriptors import allow_many

ANSWER_SECONDS = 120.0
"""A process whose event loop is busy with thousands of sockets answers when it can."""


class Program(Protocol):
    """What runs there; each of its other public methods may be called from here."""

    async def run(self) -> None:
        """Go on until cancelled."""


class Apart:
    """A started process; killed at the end, with whatever it has open.

    Args:
        program: makes the program there; it and its arguments travel pickled.
    """

    def __init__(self, program: Callable[..., Program], *arguments: object) -> None:
        # Nothing of this process's memory is to be in the other one's.
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=_begin, args=(other, program, arguments), daemon=True
        )
        self._process.start()
        other.close()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    def ask(self, method: str) -> Any:
        """Call a method of the program there, and give its answer.

        Raises:
            TimeoutError: the process does not answer.
            EOFError: it is gone.
        """
        self._pipe.send(method)
        if not self._pipe.poll(ANSWER_SECONDS):
            raise TimeoutError(f"no answer to {method} within {ANSWER_SECONDS:g} s")
        return self._pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _begin(
    pipe: Connection, program: Callable[..., Program], arguments: tuple[object, ...]
) -> None:
    allow_many()
    asyncio.run(_answer(pipe, program(*arguments)))


async def _answer(pipe: Connection, program: Program) -> None:
    """Answer until the other end is closed or the program fails."""
    running = asyncio.ensure_future(program.run())
    while True:
        asked = asyncio.ensure_future(asyncio.to_thread(pipe.recv))
        await asyncio.wait({asked, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        try:
            method = await asked
        except EOFError:
            return
        pipe.send(getattr(program, method)())
