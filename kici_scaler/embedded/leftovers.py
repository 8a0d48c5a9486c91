"""Servers that a killed predecessor left behind: found by what they are, then stopped.

A number in a pid file proves nothing, since numbers are used again. A leftover is a process
with the server's program name whose working directory is the very data folder; both servers
work inside theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil

from kici_scaler.embedded.errors import LeftoverServer
from kici_scaler.embedded.process import StopStep


def find_leftovers(program: str, folder: Path) -> list[psutil.Process]:
    """Processes named `program` at work in `folder`, parents before their children."""
    if not folder.is_dir():
        return []
    found = [
        process
        for process in psutil.process_iter()
        if _is(process, program) and _works_in(process, folder)
    ]
    return sorted(found, key=lambda process: process.create_time())


def _is(process: psutil.Process, program: str) -> bool:
    try:
        return process.name() == program and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _is_helper(process: psutil.Process, program: str) -> bool:
    """Whether it is a server's child, which says so in its title: `postgres: checkpointer`."""
    try:
        return process.cmdline()[0].startswith(f"{program}: ")
    except (psutil.Error, IndexError):
        return False


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return Path(process.cwd()).samefile(folder)
    except (psutil.Error, OSError):
        return False


def stop_leftovers(program: str, folder: Path, steps: Sequence[StopStep]) -> int:
    """Stop what an earlier run left, gently first; the count of processes found.

    Raises:
        LeftoverServer: one is still there after the last step.
    """
    found = find_leftovers(program, folder)
    left = found
    for step in steps:
        server = next((each for each in left if not _is_helper(each, program)), None)
        if server is None:  # helpers without their server can do nothing more
            break
        _signal(server, step)
        _, left = psutil.wait_procs(left, timeout=step.grace)
    for process in left:
        _kill(process)
    _, left = psutil.wait_procs(left, timeout=5.0)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise LeftoverServer(
            f"{program} of an earlier run (pid {pids}) still works in {folder} and cannot be ended",
            hint="End it by hand, or start on another folder with --data-dir.",
        )
    return len(found)


def _signal(process: psutil.Process, step: StopStep) -> None:
    try:
        process.send_signal(step.signal)
    except psutil.NoSuchProcess:
        return


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
