"""The processes of the demo, found by the folder that all of them work in."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil


def processes_of(folder: Path) -> list[psutil.Process]:
    """Live processes that have to do with the folder: by environment, arguments or directory.

    Agents detach from their parents on purpose, so the process tree does not tell.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            if process.pid != os.getpid() and _mentions(process, str(folder)):
                found.append(process)
    return found


def described(process: psutil.Process) -> str:
    """A process for a message."""
    try:
        return f"{process.pid} {process.name()}"
    except psutil.NoSuchProcess:
        return str(process.pid)


def end(processes: list[psutil.Process]) -> None:
    """Kill what should have ended by itself."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _mentions(process: psutil.Process, folder: str) -> bool:
    if process.status() == psutil.STATUS_ZOMBIE:
        return False
    texts = [*process.environ().values(), *process.cmdline(), process.cwd()]
    return any(folder in text for text in texts)
