"""The few kernel features that keep a job's processes from outliving the agent.

On other systems than Linux these do nothing, and a process that leaves the job's group
can stay behind.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


def _no_prctl(_option: int, _argument: int | bytes) -> None:
    return None


def _load_prctl() -> Callable[[int, int | bytes], None]:
    if sys.platform != "linux":
        return _no_prctl
    libc = ctypes.CDLL(None)

    unused = ctypes.c_ulong(0)

    def prctl(option: int, argument: int | bytes) -> None:
        plain = ctypes.c_ulong(argument) if isinstance(argument, int) else argument
        libc.prctl(option, plain, unused, unused, unused)

    return prctl


_prctl = _load_prctl()


def become_subreaper() -> None:
    """From now on processes orphaned below this one become its children, not those of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it is gone."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def name_process(name: str) -> None:
    """What process listings show as this process's short name; 15 bytes at most."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def children(pid: int) -> frozenset[int] | None:
    """The direct children of a single-threaded process; None when the kernel does not say."""
    try:
        return frozenset(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return _children_by_search(pid)


def _children_by_search(parent: int) -> frozenset[int] | None:
    try:
        numbers = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    except OSError:
        return None
    return frozenset(pid for pid in numbers if _parent_of(pid) == parent)


def _parent_of(pid: int) -> int | None:
    """The parent's pid; None when the process is gone. The name may hold blanks and brackets."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])
