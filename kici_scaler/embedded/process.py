"""One child process: started, listened to, signalled and reaped without a race.

The child leads a process group of its own, so a Ctrl-C on the terminal reaches only its
parent. When it ends, what is left in that group is killed before the child is reaped, because
until then its number cannot belong to anyone else. Processes that left the group (agents) stay.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from kici_scaler.embedded.account import Account

LAUNCHER: Final = Path(__file__).with_name("launch.py")
TAIL_LINES: Final = 30
LONGEST_LINE: Final = 64 * 1024
LAST_WORDS_WITHIN: Final = 0.5


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: an absolute program, its arguments and its whole environment.

    Attributes:
        environment: everything the program sees; nothing is inherited.
        account: whom to run as; the caller's own when None.
        dies_with: signal the kernel sends it when its parent is gone.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    directory: Path
    account: Account | None = None
    dies_with: signal.Signals = signal.SIGKILL


@dataclass(frozen=True, slots=True)
class StopStep:
    """A signal and how many seconds it gets before the next step."""

    signal: signal.Signals
    grace: float


class Process:
    """A running child.

    Args:
        command: what to run.
        on_line: called, in a thread of its own, with every line the child writes.

    The thread that creates it must live as long as the child, which the kernel ties to it.
    """

    def __init__(self, command: Command, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._over = threading.Event()
        self._signals = threading.Lock()
        self._child = subprocess.Popen(
            _launched(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=command.directory,
            env=dict(command.environment),
            start_new_session=True,
        )
        assert self._child.stdout is not None
        self._listener = threading.Thread(
            target=self._listen, args=(self._child.stdout,), daemon=True
        )
        self._listener.start()
        threading.Thread(target=self._reap, daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id; the program's own, since the launcher became it."""
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """Exit code once it ended (negative: the signal), None while it runs."""
        return self._child.returncode if self._over.is_set() else None

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it has ended within that time."""
        return self._over.wait(seconds)

    def tail(self) -> tuple[str, ...]:
        """The last lines it wrote."""
        return tuple(self._tail)

    def send(self, number: signal.Signals) -> None:
        """Signal the child itself; nothing happens when it has ended."""
        with self._signals:
            if self._child.returncode is None:
                os.kill(self.pid, number)

    def stop(self, steps: Sequence[StopStep]) -> None:
        """End it: each signal in turn with its grace, then SIGKILL to its whole group."""
        for step in steps:
            self.send(step.signal)
            if self.wait(step.grace):
                return
        self.send(signal.SIGKILL)
        self.wait()

    def _reap(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._signals:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._child.wait()
        # Whoever left the group may hold the pipe open; the last words are not worth more.
        self._listener.join(timeout=LAST_WORDS_WITHIN)
        self._over.set()

    def _listen(self, output: IO[bytes]) -> None:
        with output:
            while line := output.readline(LONGEST_LINE):
                text = line.decode(errors="replace").rstrip()
                self._tail.append(text)
                self._on_line(text)


def _launched(command: Command) -> list[str]:
    account = command.account
    uid, gid = (account.uid, account.gid) if account else (-1, -1)
    numbers = (int(command.dies_with), os.getpid(), uid, gid)
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER)]
    return [*launcher, *map(str, numbers), *command.argv]
