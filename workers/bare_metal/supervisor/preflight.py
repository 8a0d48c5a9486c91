"""`hello` and `check`: what this machine is, what it can do, and what it lacks."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from . import boxes, cgroups, files, processes, scopes
from .folder import Root
from .refusal import Refused


def hello(root: Root, _content: dict[str, Any], _give_up_at: float) -> dict[str, Any]:
    """A sign of life, cheap enough for every few seconds, and what this machine is.

    Raises:
        Refused: `not-done`, when this is not Linux.
    """
    if not Path("/proc/self/stat").exists():
        raise Refused("not-done", "agents as processes need Linux and /proc")
    disk = os.statvfs(str(root.path))
    return {
        "boot_id": processes.boot_id(),
        "clock": time.time(),
        "hostname": os.uname().nodename,
        "system": sys.platform,
        "machine": os.uname().machine,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "free_bytes": disk.f_bavail * disk.f_frsize,
    }


def check(root: Root, content: dict[str, Any], give_up_at: float) -> dict[str, Any]:
    """Facts about the machine, and for each of `executables` why it cannot be run, if so.

    Raises:
        Refused: `not-done`, when the root folder cannot be used or this is not Linux.
    """
    facts = hello(root, content, give_up_at)
    try:
        _probe(files.make_private(root.path))
    except OSError as error:
        raise Refused("not-done", f"{root.path} cannot be written: {error}") from error
    usable = _usable_cgroups()
    return {
        **facts,
        "python": ".".join(map(str, sys.version_info[:3])),
        "cgroups": usable,
        "scopes": usable is None and scopes.is_usable(),
        "runtime": boxes.usable() if content.get("containers") else None,
        "executables": {each: _fault(each) for each in content.get("executables", [])},
    }


def _probe(folder: Path) -> None:
    probe = folder / f".probe.{os.getpid()}"
    probe.write_text("")
    probe.unlink()


def _usable_cgroups() -> int | None:
    """The version that this user may use, or None."""
    limits = cgroups.Limits({"memory_bytes": 1 << 30, "cpu_millis": 1000, "processes": 1000})
    planned = cgroups.plan(f"probe.{os.getpid()}", limits)
    try:
        cgroups.make(planned, limits)
    except OSError:
        return None
    finally:
        cgroups.remove([str(each) for each in planned])
    return cgroups.version()


def _fault(executable: str) -> str | None:
    folders = [""] if "/" in executable else os.environ.get("PATH", "").split(os.pathsep)
    if any(_is_executable(Path(folder, executable)) for folder in folders):
        return None
    return "is not executable" if Path(executable).exists() else "does not exist"


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(str(path), os.X_OK)
