"""The monitor: the parent of one agent, for as long as that agent or anything of it lives.

It is forked by `start` and outlives it, the worker and the connection. It starts the agent
in a session of its own, keeps what it prints, records how it ended, and kills what it leaves
behind: as a subreaper it becomes the parent of every process that the agent abandons.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import agent, boxes, cgroups, processes, scopes
from .folder import Folder
from .order import Order
from .output import Output

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_READ_BYTES = 65536
_RECORD_ATTEMPTS = 60
_READS_A_TURN = 64
_HOPELESS = {
    errno.E2BIG,
    errno.EACCES,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOEXEC,
    errno.ENOTDIR,
    errno.EPERM,
}
"""What another attempt at the same command cannot change."""
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)


def detach(folder: Folder, order: Order, lock: int, report: int) -> NoReturn:
    """Leave the process that forked us, run the agent, and end with it."""
    try:
        os.setsid()
        if os.fork() == 0:
            _run(folder, order, lock, report)
    finally:
        os._exit(0)


def _run(folder: Folder, order: Order, lock: int, report: int) -> None:
    _keep_only({lock, report})
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _become_subreaper()
    speak = _Report(report)
    try:
        folder.monitor = processes.identify(os.getpid())
        born = agent.fork(folder, order)
    except OSError as error:
        code = "permanent" if error.errno in _HOPELESS else "not-done"
        speak.say({"failed": f"{order.command[0]} cannot be started: {error}", "code": code})
        return
    speak.say({"started": True})
    Watch(folder, born, order.log_bytes).until_over(lambda cause: speak.say({"ended": cause}))


def _keep_only(wanted: set[int]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for each in list(Path("/proc/self/fd").iterdir()):
        if int(each.name) > 2 and int(each.name) not in wanted:
            _close(int(each.name))


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        # The listing's own descriptor, closed by the listing.
        return


def _become_subreaper() -> None:
    # Loading it costs every command more than its work does.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NAME, b"kici-monitor", 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class _Report:
    """Tells the starting process, if it still listens."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, word: dict[str, Any]) -> None:
        try:
            os.write(self._descriptor, json.dumps(word).encode() + b"\n")
        except BrokenPipeError:
            # It was killed or has its answer; the files tell the rest.
            return


class Watch:
    """Keeps the agent's output and records its end."""

    def __init__(self, folder: Folder, born: agent.Born, log_bytes: int) -> None:
        self._folder = folder
        self._agent = born.process.pid
        self._reader: int | None = born.output
        self._output = Output(folder.output, log_bytes)
        self._cause: dict[str, Any] | None = None
        self._woken, waker = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._woken, False)
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def until_over(self, tell_ended: Callable[[dict[str, Any]], None]) -> None:
        """Return once nothing of the agent lives; `tell_ended` is called when it itself ended."""
        is_told = False
        while self._has_children() or not is_told:
            if self._cause is not None and not is_told:
                tell_ended(self._cause)
                is_told = True
            if self._cause is not None:
                self._kill_leftovers()
            self._wait()
            self._drain()

    def _wait(self) -> None:
        readers = [self._woken] if self._reader is None else [self._woken, self._reader]
        # With leftovers to kill, whatever they fork meanwhile is looked for again soon.
        ready = select.select(readers, [], [], 1.0 if self._cause is None else 0.05)[0]
        if self._woken in ready:
            os.read(self._woken, _READ_BYTES)

    def _drain(self) -> None:
        """Keep what was printed; not without end, for a flood must not delay the rest."""
        for _ in range(_READS_A_TURN):
            if self._reader is None:
                return
            try:
                data = os.read(self._reader, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                os.close(self._reader)
                self._reader = None
            self._output.write(data)

    def _has_children(self) -> bool:
        """Reap who ended; whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._agent:
                self._drain()
                self._cause = self._judge(status)
                self._record(self._cause)

    def _judge(self, status: int) -> dict[str, Any]:
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        record = self._folder.record or {"cgroups": []}
        was_killed = number == signal.SIGKILL or code == 128 + signal.SIGKILL
        if self._folder.is_stopping:
            kind, detail = "stopped", "stopped on request"
        elif was_killed and self._was_out_of_memory(record):
            kind, detail = "out-of-memory", "killed for passing its memory limit"
        elif number is not None:
            kind, detail = "signalled", f"ended by signal {number}"
        else:
            kind, detail = "exited", f"exited with code {code}"
        return {"kind": kind, "exit_code": code, "signal": number, "detail": detail}

    def _was_out_of_memory(self, record: dict[str, Any]) -> bool:
        if record.get("container"):
            return boxes.was_out_of_memory(record["container"])
        if record.get("scope"):
            return scopes.was_out_of_memory(self._folder.agent_id)
        return cgroups.was_out_of_memory(record["cgroups"])

    def _record(self, cause: dict[str, Any]) -> None:
        for _ in range(_RECORD_ATTEMPTS):
            try:
                self._folder.exit = cause
            except FileNotFoundError:
                # The folder was taken away: nobody asks any more.
                return
            except OSError:
                # A full disk: the verdict is worth waiting for room.
                time.sleep(1.0)
            else:
                return

    def _kill_leftovers(self) -> None:
        for each in processes.descendants({os.getpid()}, processes.table()):
            processes.send(each, signal.SIGKILL)
