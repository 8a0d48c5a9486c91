"""`check`: what this machine can do, and what it lacks."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from . import cgroups, files
from .folder import Root
from .refusal import Refused


def check(root: Root, content: dict[str, Any], _give_up_at: float) -> dict[str, Any]:
    """Facts about the machine, and for each of `executables` why it cannot be run, if so.

    Raises:
        Refused: `not-done`, when the root folder cannot be used or this is not Linux.
    """
    if not Path("/proc/self/stat").exists():
        raise Refused("not-done", "agents as processes need Linux and /proc")
    try:
        free = shutil.disk_usage(str(files.make_private(root.path))).free
        _probe(root.path)
    except OSError as error:
        raise Refused("not-done", f"{root.path} cannot be written: {error}") from error
    return {
        "python": platform.python_version(),
        "hostname": platform.node(),
        "system": sys.platform,
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "free_bytes": free,
        "cgroups": _usable_cgroups(),
        "clock": time.time(),
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
    found = shutil.which(executable)
    if found:
        return None
    return "is not executable" if Path(executable).exists() else "does not exist"
