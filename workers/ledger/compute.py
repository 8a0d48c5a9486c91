"""Whether the compute a ledger row names is provably gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

Probe = Callable[[Mapping[str, str]], bool]
"""Whether compute of one kind is provably gone; False when it is not, or not known."""


def pid_namespace() -> str:
    """The process-id namespace of this process; ids mean nothing outside theirs."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "unknown"


def process_is_gone(compute: Mapping[str, str]) -> bool:
    """Whether a process (`pid`, `start_ticks`) of this namespace has certainly ended.

    A process id that runs with another start time is somebody else's.
    """
    if compute.get("pid_namespace") != pid_namespace():
        return False
    pid, ticks = compute.get("pid", ""), compute.get("start_ticks", "")
    if not pid.isdigit() or not ticks:
        return False
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    except (PermissionError, ProcessLookupError, OSError):
        return False
    return stat.rpartition(")")[2].split()[19] != ticks
