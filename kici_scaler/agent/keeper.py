"""The keeper: a small process between the agent and its job.

It is forked from the agent before anything else happens, in a session of its own, so that
a signal to the agent's group does not reach it. It starts the job's command as the leader
of another session, adopts whatever the command forks (child subreaper), and lets nothing
outlive the job: when the command ends, when the agent says so, or when the agent is gone
(its end of the socket pair closes, also after `kill -9`), every process below is killed.
Should the keeper itself be killed, the kernel kills the command's leader.

Messages, agent to keeper: `start {command, env, cwd}` with stdin, stdout and stderr as
open files; `terminate {graceSeconds}`. Keeper to agent: `started {pid}`,
`failed {error}`, `ended {exitCode, signal, stuck}`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from kici_scaler.agent import frames, linux

KILL_PATIENCE_SECONDS = 10.0
"""A process in an uninterruptible wait cannot be killed; after this long the job counts
as ended all the same, and says so."""

_WAVE_SECONDS = 0.02
_STANDARD_FILES = 3


class AgentGone(Exception):
    """The agent's end of the socket pair is closed."""


def fork_keeper() -> socket.socket:
    """Fork the keeper; returns the agent's end of the pair.

    Call it while the process has one thread, and after secrets left its environment.
    """
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        _be_keeper(theirs)
    theirs.close()
    return ours


def _be_keeper(control: socket.socket) -> NoReturn:
    code = 0
    try:
        os.setsid()
        linux.become_subreaper()
        linux.name_process("kici-keeper")
        Keeper(control).run()
    except AgentGone:
        pass
    except BaseException:  # noqa: BLE001 - this process must end here, whatever happened
        code = 1
    os._exit(code)


class Keeper:
    """The loop of the keeper's process; at most one command at a time."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._reader = frames.Reader()
        self._files: list[int] = []
        self._leader: int | None = None
        self._ended: tuple[int | None, int | None] | None = None
        self._kill_at: float | None = None
        self._child_changed, wake = os.pipe()
        for end in (self._child_changed, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        # Handlers, not SIG_IGN: a command inherits what is ignored, but no handler.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> NoReturn:
        """Serve until the agent is gone; then leave no process behind.

        Raises:
            AgentGone: the ordinary end.
        """
        try:
            while True:
                self._wait(self._pause())
                self._look_after()
        finally:
            self._kill_all(time.monotonic() + 3600)

    def _pause(self) -> float | None:
        if self._kill_at is None:
            return None
        return max(0.0, self._kill_at - time.monotonic())

    def _wait(self, seconds: float | None) -> None:
        control = self._control.fileno()
        ready, _, _ = select.select([control, self._child_changed], [], [], seconds)
        if self._child_changed in ready:
            self._clear_wake()
        if control in ready:
            self._receive()

    def _clear_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._child_changed, 512)

    def _receive(self) -> None:
        try:
            data, files, _, _ = socket.recv_fds(self._control, frames.READ_SIZE, _STANDARD_FILES)
        except ConnectionError as problem:
            raise AgentGone from problem
        self._files += files
        if not data:
            raise AgentGone
        for message in self._reader.feed(data):
            self._obey(message)

    def _obey(self, message: Mapping[str, Any]) -> None:
        if message["kind"] == "start":
            self._start(message)
        elif self._leader is not None:
            kill_at = time.monotonic() + float(message["graceSeconds"])
            self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
            self._signal_group(signal.SIGTERM)

    def _start(self, message: Mapping[str, Any]) -> None:
        files, self._files = self._files, []
        try:
            started = subprocess.Popen(
                message["command"],
                env=message["env"],
                cwd=message["cwd"],
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                start_new_session=True,
                preexec_fn=linux.die_with_parent,
            )
        except (OSError, ValueError, IndexError, subprocess.SubprocessError) as problem:
            self._tell(kind="failed", error=_why(problem, message["command"]))
            return
        finally:
            for each in files:
                os.close(each)
        self._leader, self._ended, self._kill_at = started.pid, None, None
        # This process reaps by itself; the object must not try when it is collected.
        started.returncode = 0
        self._tell(kind="started", pid=started.pid)

    def _look_after(self) -> None:
        """Reap what died; end the job once its leader did, or once its time is up."""
        alive = self._reap()
        if self._leader is None:
            return
        overdue = self._kill_at is not None and time.monotonic() >= self._kill_at
        if self._ended is None and not overdue:
            return
        if self._kill_at is not None and not overdue and alive > 0:
            return
        stuck = self._kill_all(time.monotonic() + KILL_PATIENCE_SECONDS)
        code, number = self._ended or (None, int(signal.SIGKILL))
        self._leader, self._ended, self._kill_at = None, None, None
        self._tell(kind="ended", exitCode=code, signal=number, stuck=stuck)

    def _reap(self) -> int:
        """Collect dead children, note how the leader died; how many others still live.

        A dead leader is looked at but not collected: as long as it is a zombie, its number
        cannot be taken by a stranger, and signals to its group reach only the job. It is looked
        at first: what a dead one left behind is among this process's children by then, while a
        list from before its death lacks it.
        """
        if self._leader is not None:
            self._look_at_leader(self._leader)
        return sum(not _collected(child) for child in self._others())

    def _others(self) -> frozenset[int]:
        """Children besides the leader; none where the kernel does not say."""
        return frozenset(linux.children(os.getpid()) or ()) - {self._leader}

    def _look_at_leader(self, leader: int) -> None:
        if self._ended is not None:
            return
        seen = os.waitid(os.P_PID, leader, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return
        died = seen.si_code != os.CLD_EXITED
        self._ended = (None, seen.si_status) if died else (seen.si_status, None)

    def _kill_all(self, give_up_at: float) -> int:
        """Kill everything below this process, wave by wave; how many would not die.

        Each wave kills direct children only: their numbers are held by this process until
        it collects them. What they leave behind is adopted and meets the next wave.
        """
        while True:
            self._signal_group(signal.SIGKILL)
            for child in self._others():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
            alive = self._reap()
            if (alive == 0 and self._leader_is_dead()) or time.monotonic() >= give_up_at:
                break
            select.select([self._child_changed], [], [], _WAVE_SECONDS)
            self._clear_wake()
        if self._leader is not None:
            alive += not _collected(self._leader)
        return alive

    def _leader_is_dead(self) -> bool:
        return self._leader is None or self._ended is not None

    def _signal_group(self, number: signal.Signals) -> None:
        if self._leader is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, number)

    def _tell(self, **message: object) -> None:
        try:
            frames.send(self._control, message)
        except OSError as problem:
            raise AgentGone from problem


def kill_orphans(seconds: float) -> None:
    """Kill every child of this process; for the agent, when its keeper was killed."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        orphans = linux.children(os.getpid()) or frozenset()
        if not orphans:
            return
        for child in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        waiting = [child for child in orphans if not _collected(child)]
        if waiting:
            select.select([], [], [], _WAVE_SECONDS)


def _collected(child: int) -> bool:
    """Collect a child if it is dead; whether it is gone now."""
    try:
        pid, _ = os.waitpid(child, os.WNOHANG)
    except ChildProcessError:
        return True
    return pid == child


def _why(problem: Exception, command: list[str]) -> str:
    """A sentence for the job's owner about a command that could not be started."""
    name = command[0] if command else ""
    if isinstance(problem, FileNotFoundError) and problem.filename == name:
        return f"command not found (or its interpreter is not): {name!r}"
    if isinstance(problem, PermissionError):
        return f"not allowed to execute {name!r}"
    return f"could not start {name!r}: {problem}"
