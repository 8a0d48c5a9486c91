"""The parent of one microVM: keeps what it prints within bounds, and writes down how it ended.

Runs as a process of its own, so that stopping a worker disturbs no agent. It imports nothing but
the standard library and starts in some ten milliseconds. On standard input it is given its order
as one JSON object; its one argument, the agent's folder, is there so that it can be found.

The jailer starts Firecracker in a new pid namespace and ends; whoever was started by it becomes
a child of this process, which therefore learns how it ended and whether it was killed.

Kill table (`kill -9` at ...):

- before the mark `started`: nothing ever runs under this name; the next call starts it.
- after it: nobody starts anything beside it. The microVM goes on without its monitor; its
  console is lost from then on, and its end is known by its process alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36

MOST_BYTES = 1 << 20
"""Of the console in one file; there are two, so that at least this much is kept."""

BYTES_PER_SECOND = 256 << 10
"""What a guest may print in the long run; more is dropped, and it is said so."""

BURST_BYTES = 1 << 20
"""What it may print at once, such as while it boots."""

CHUNK = 1 << 16


class Console:
    """The newest of what a guest printed, in two files of bounded size.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, path: Path, *, now: float) -> None:
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._allowed = float(BURST_BYTES)
        self._at = now
        self._dropped = 0

    def write(self, data: bytes, now: float) -> None:
        """Keep it, or as much of it as may be printed at that moment."""
        self._allowed = min(BURST_BYTES, self._allowed + (now - self._at) * BYTES_PER_SECOND)
        self._at = now
        kept = data[: int(self._allowed)]
        if self._dropped and kept:
            self._append(b"\n[kici: %d bytes of the console were dropped]\n" % self._dropped)
            self._dropped = 0
        self._allowed -= len(kept)
        self._dropped += len(data) - len(kept)
        if kept:
            self._append(kept)

    def _append(self, data: bytes) -> None:
        try:
            if self._file.tell() + len(data) > MOST_BYTES:
                self._file.close()
                self._path.replace(f"{self._path}.1")
                self._file = self._path.open("ab", buffering=0)
            self._file.write(data)
        except OSError:
            # A full disk must not stop the guest: what cannot be kept counts as dropped.
            self._dropped += len(data)


def main() -> int:
    """Start what standard input says, and stay until it is over."""
    order: dict[str, Any] = json.load(sys.stdin)
    home = Path(sys.argv[1])
    lock = os.open(home / "monitor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    reader, writer = os.pipe()
    os.close(os.open(home / "started", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        jailer = subprocess.Popen(
            order["command"],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer,
            env={},
            cwd="/",
        )
    except OSError as error:
        os.close(writer)
        _write(home / "exit.json", {"start_failed": f"the jailer cannot be run: {error}"})
        return 1
    os.close(writer)
    _let_go()
    _copy(reader, Console(home / "console.log", now=time.monotonic()))
    _write(home / "exit.json", _ended(jailer.pid))
    return 0


def _let_go() -> None:
    """Whoever started this process may go; nothing of it is held open."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)


def _copy(reader: int, console: Console) -> None:
    while True:
        try:
            data = os.read(reader, CHUNK)
        except InterruptedError:
            continue
        if not data:
            return
        console.write(data, time.monotonic())


def _ended(jailer: int) -> dict[str, object]:
    """How each child ended: the jailer, and the one that became ours when it was over."""
    ended: dict[str, object] = {"at": time.time()}
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended["jailer" if pid == jailer else "vmm"] = code
        ended["at"] = time.time()


def _write(path: Path, content: dict[str, object]) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(content))
    temporary.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
