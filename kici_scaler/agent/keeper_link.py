"""The agent's side of its keeper."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kici_scaler.agent import frames


class KeeperLost(Exception):
    """The job's watchdog process is gone; nothing can be started or watched any more."""


class NotStarted(Exception):
    """The command could not be started; the message says why."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command's leader ended, after everything below it was gone.

    `stuck` counts processes that could not be killed.
    """

    exit_code: int | None
    signal: int | None
    stuck: int


class KeeperLink:
    """Starts and stops the command; one at a time.

    The socket stays blocking for sending (the keeper always reads); receiving is driven
    by the event loop.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._reader = frames.Reader()
        self._messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._lost = False

    def attach(self) -> None:
        """Listen on the running event loop."""
        asyncio.get_running_loop().add_reader(self._control.fileno(), self._receive)

    async def start(
        self,
        command: tuple[str, ...],
        env: Mapping[str, str],
        cwd: str,
        files: tuple[int, int, int],
    ) -> int:
        """Start a command with these standard files; returns its pid.

        Raises:
            NotStarted: no such command, not executable, arguments too long.
            KeeperLost: there is no keeper.
        """
        self._send(files, kind="start", command=list(command), env=dict(env), cwd=cwd)
        answer = await self._next()
        if answer["kind"] == "failed":
            raise NotStarted(answer["error"])
        return int(answer["pid"])

    async def ended(self) -> Ended:
        """Wait for the end of the command and of all it left behind.

        Raises:
            KeeperLost: the keeper died first.
        """
        answer = await self._next()
        return Ended(answer["exitCode"], answer["signal"], answer["stuck"])

    def terminate(self, grace_seconds: float) -> None:
        """TERM to the command's group; KILL to everything that lives after the grace.

        A keeper that is gone took the command with it; `ended` tells.
        """
        with contextlib.suppress(KeeperLost):
            self._send((), kind="terminate", graceSeconds=grace_seconds)

    def _send(self, files: tuple[int, ...], **message: object) -> None:
        try:
            frames.send(self._control, message, files)
        except OSError as problem:
            raise KeeperLost from problem

    async def _next(self) -> dict[str, Any]:
        message = None if self._lost else await self._messages.get()
        if message is None:
            raise KeeperLost
        return message

    def _receive(self) -> None:
        try:
            data = self._control.recv(frames.READ_SIZE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._lost = True
            self._messages.put_nowait(None)
            return
        for message in self._reader.feed(data):
            self._messages.put_nowait(message)
