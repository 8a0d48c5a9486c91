"""The few kernel features that keep a job's processes from outliving the agent.

On other systems than Linux these do nothing, and a process that leaves the job's group
can stay behind.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_EVENTS, _CONTROL = "memory.events", "memory.oom_control"


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


def memory_kills(own: Path = _OWN_GROUPS, groups: Path = _GROUPS) -> int:
    """How many processes of this one's control group the kernel has killed for want of memory.

    Since the group was made; 0 where nothing counts them. Compare two answers.
    """
    for file in _counters(own, groups):
        try:
            fields = dict(line.split(None, 1) for line in file.read_text().splitlines())
            return int(fields["oom_kill"])
        except (OSError, ValueError, KeyError):
            continue
    return 0


def _counters(own: Path, groups: Path) -> Iterator[Path]:
    """Where the count may stand: version 2, version 1, each also as seen from a container."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in (line for line in lines if len(line) == 3):
        below = path.lstrip("/")
        if not controllers:
            yield from (groups / below / _EVENTS, groups / _EVENTS)
        elif "memory" in controllers.split(","):
            yield from (groups / "memory" / below / _CONTROL, groups / "memory" / _CONTROL)


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
