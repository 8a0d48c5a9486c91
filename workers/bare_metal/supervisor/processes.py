"""The process table: who a process is, who descends from it, and signals that never stray.

A pid alone names nobody, for the kernel gives it away again. Here a process is its pid,
the tick it started at, and the boot it lives in; a signal goes only to that process.
"""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

_PROC = Path("/proc")
_DEAD_STATES = "ZXx"


def boot_id() -> str:
    """What tells this boot of the machine from every other one."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


class Identity(NamedTuple):
    """One process, for all time: its pid, its start in clock ticks after boot, and the boot."""

    pid: int
    start_ticks: int
    boot: str

    @classmethod
    def parse(cls, content: dict[str, Any] | None) -> Identity | None:
        """What `as_json` wrote; None when nothing was written."""
        if content is None:
            return None
        return cls(int(content["pid"]), int(content["start_ticks"]), str(content["boot_id"]))

    def as_json(self) -> dict[str, Any]:
        """What `parse` reads."""
        return {"pid": self.pid, "start_ticks": self.start_ticks, "boot_id": self.boot}

    @property
    def is_alive(self) -> bool:
        """Whether it runs; one that only waits to be reaped does not."""
        seen = look(self.pid)
        return seen is not None and seen.is_running and seen.identity == self


class Seen(NamedTuple):
    """A process as the table showed it at one moment."""

    identity: Identity
    state: str
    parent: int
    group: int

    @property
    def pid(self) -> int:
        """Its pid."""
        return self.identity.pid

    @property
    def is_running(self) -> bool:
        """Whether it does more than wait to be reaped."""
        return self.state not in _DEAD_STATES


def look(pid: int) -> Seen | None:
    """The process of that pid now, or None."""
    return _look(pid, boot_id())


def identify(pid: int) -> Identity:
    """Which process has that pid now.

    Raises:
        ProcessLookupError: none has.
    """
    seen = look(pid)
    if seen is None:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(pid))
    return seen.identity


def table() -> dict[int, Seen]:
    """Every running process of this machine, by pid."""
    boot = boot_id()
    names = [each.name for each in _PROC.iterdir() if each.name.isdigit()]
    found = (_look(int(name), boot) for name in names)
    return {each.pid: each for each in found if each is not None and each.is_running}


def _look(pid: int, boot: str) -> Seen | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name comes second, in parentheses, and may hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return Seen(Identity(pid, int(fields[19]), boot), fields[0], int(fields[1]), int(fields[2]))


def descendants(roots: set[int], seen: dict[int, Seen]) -> set[Identity]:
    """Every process below those pids, the roots themselves not included."""
    children: dict[int, list[Seen]] = {}
    for each in seen.values():
        children.setdefault(each.parent, []).append(each)
    found: set[Identity] = set()
    queue = list(roots)
    while queue:
        for child in children.get(queue.pop(), []):
            if child.identity not in found:
                found.add(child.identity)
                queue.append(child.pid)
    return found


def ancestors(pid: int, seen: dict[int, Seen]) -> set[int]:
    """The pids from which that process descends, and its own."""
    found: set[int] = set()
    while pid in seen and pid not in found:
        found.add(pid)
        pid = seen[pid].parent
    return found


def marked(name: str, value: str, seen: dict[int, Seen]) -> dict[Identity, dict[str, str]]:
    """Processes of this user whose environment has that variable, with their environments.

    The environment is the one a process was started with, so what descends from an agent
    keeps its marks unless it took care to drop them.
    """
    user = os.getuid()
    found = {each.identity: _environment(each.pid, user) for each in seen.values()}
    return {each: given for each, given in found.items() if given.get(name) == value}


def _environment(pid: int, user: int) -> dict[str, str]:
    folder = _PROC / str(pid)
    try:
        if folder.stat().st_uid != user:
            return {}
        entries = (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        # Gone meanwhile, or not ours to read: then it is not one of ours.
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
    return {key: value for key, separator, value in pairs if separator}


def started_at(identity: Identity) -> float:
    """When it started, in epoch seconds by this machine's clock."""
    lines = (_PROC / "stat").read_text().splitlines()
    booted = next(float(line.split()[1]) for line in lines if line.startswith("btime"))
    return booted + identity.start_ticks / os.sysconf("SC_CLK_TCK")


def send(target: Identity, number: signal.Signals) -> None:
    """Signal that very process; nothing happens when it is gone, whoever has its pid now.

    Raises:
        PermissionError: the process is another user's.
    """
    if not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        if target.is_alive:
            _quietly_kill(target.pid, number)
        return
    try:
        descriptor = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return
    except OSError:
        # A kernel before 5.3: the check and the signal are two steps there.
        if target.is_alive:
            _quietly_kill(target.pid, number)
        return
    try:
        if target.is_alive:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _quietly_kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
