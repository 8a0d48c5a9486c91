"""Limits and accounting of one agent's processes, by cgroup version 2 or 1.

A cgroup is used when it is asked for and this user may make one; the names of what was made
are in the agent's record before it is made, so that they can always be removed.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any

from . import processes

PARENT = "kici-scaler"
"""The cgroup under which those of the agents are made."""

_PERIOD_MICROSECONDS = 100_000
_REMOVE_SECONDS = 2.0


class Limits:
    """What an agent's processes may use together; None or 0 is unlimited."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.memory_bytes: int | None = content.get("memory_bytes") or None
        self.cpu_millis: int | None = content.get("cpu_millis") or None
        self.processes: int | None = content.get("processes") or None

    @property
    def any(self) -> bool:
        """Whether anything is limited."""
        return any((self.memory_bytes, self.cpu_millis, self.processes))


def version(mount: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Which version governs memory, CPU and process counts here; None where neither does."""
    try:
        if {"memory", "cpu", "pids"} <= set((mount / "cgroup.controllers").read_text().split()):
            return 2
    except OSError:
        pass
    return 1 if all((mount / name).is_dir() for name in ("memory", "cpu", "pids")) else None


def plan(name: str, limits: Limits, mount: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """The folders that would hold the agent; none where no cgroup can be had."""
    which = version(mount)
    if which == 2:
        return [mount / PARENT / name]
    if which == 1:
        wanted = {
            "memory": limits.memory_bytes,
            "cpu": limits.cpu_millis,
            "pids": limits.processes,
        }
        return [mount / controller / PARENT / name for controller, most in wanted.items() if most]
    return []


def make(folders: list[Path], limits: Limits) -> None:
    """Make them and set the limits.

    Raises:
        OSError: this user may not, or the kernel refuses a value.
    """
    for folder in folders:
        if _is_unified(folder):
            _enable_controllers(folder.parent)
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in _settings(folder, limits).items():
            (folder / name).write_text(value)


def _is_unified(folder: Path) -> bool:
    return folder.parent.name == PARENT and (folder.parent.parent / "cgroup.controllers").exists()


def _enable_controllers(parent: Path) -> None:
    parent.mkdir(exist_ok=True)
    for level in (parent.parent, parent):
        (level / "cgroup.subtree_control").write_text("+memory +cpu +pids")


def _settings(folder: Path, limits: Limits) -> dict[str, str]:
    controller = "all" if _is_unified(folder) else folder.parent.parent.name
    quota = (limits.cpu_millis or 0) * _PERIOD_MICROSECONDS // 1000
    settings: dict[str, str] = {}
    if limits.memory_bytes and controller == "all":
        settings["memory.max"] = str(limits.memory_bytes)
        settings["memory.oom.group"] = "1"
    if limits.memory_bytes and controller == "memory":
        settings["memory.limit_in_bytes"] = str(limits.memory_bytes)
    if limits.cpu_millis and controller == "all":
        settings["cpu.max"] = f"{quota} {_PERIOD_MICROSECONDS}"
    if limits.cpu_millis and controller == "cpu":
        settings["cpu.cfs_period_us"] = str(_PERIOD_MICROSECONDS)
        settings["cpu.cfs_quota_us"] = str(quota)
    if limits.processes and controller in ("all", "pids"):
        settings["pids.max"] = str(limits.processes)
    return settings


def join(folders: list[str]) -> None:
    """Put the calling process, and so all it will start, into them."""
    for folder in folders:
        (Path(folder) / "cgroup.procs").write_text(str(os.getpid()))


def members(folders: list[str]) -> set[int]:
    """The pids in them now."""
    found: set[int] = set()
    for folder in folders:
        try:
            found.update(int(pid) for pid in (Path(folder) / "cgroup.procs").read_text().split())
        except OSError:
            # Not made, or removed: then nothing is in it.
            continue
    return found


def was_out_of_memory(folders: list[str]) -> bool:
    """Whether the kernel killed something in them for passing the memory limit."""
    for folder in folders:
        for name in ("memory.events", "memory.oom_control"):
            try:
                lines = (Path(folder) / name).read_text().splitlines()
            except OSError:
                continue
            counts = dict(line.split(" ", 1) for line in lines if " " in line)
            if int(counts.get("oom_kill", "0")) > 0:
                return True
    return False


def remove(folders: list[str]) -> None:
    """Remove them; what still lives in them is killed first."""
    give_up_at = time.monotonic() + _REMOVE_SECONDS
    for folder in map(Path, folders):
        while not _is_removed(folder) and time.monotonic() < give_up_at:
            _kill_members(folder)
            time.sleep(0.01)


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError as error:
        # What this user may not even see was never made by it.
        return error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM)
    return True


def _kill_members(folder: Path) -> None:
    for pid in members([str(folder)]):
        seen = processes.look(pid)
        if seen is not None:
            processes.send(seen.identity, signal.SIGKILL)
