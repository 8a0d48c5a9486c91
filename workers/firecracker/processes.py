"""Finding the processes of one microVM, and signalling those and no others."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

import psutil

from workers.contract import Deadline
from workers.firecracker.layout import Layout

START_SLACK_SECONDS = 60.0
"""By how much a process may have begun after its pid was written down; the reference's number."""

COMM_LENGTH = 15
"""The kernel keeps no more of a program's name."""


class Kind(StrEnum):
    """What a process is to a microVM."""

    VMM = "vmm"
    JAILER = "jailer"
    MONITOR = "monitor"


@dataclass(frozen=True, slots=True)
class Found:
    """A process of a microVM: its VMM, or what stands for it while it starts."""

    pid: int
    began: float
    """Epoch seconds; with the pid it is this process and no later one."""
    kind: Kind

    @property
    def is_vmm(self) -> bool:
        """Whether the guest runs in it."""
        return self.kind is Kind.VMM


def of(layout: Layout) -> tuple[Found, ...]:
    """Every process of that microVM: Firecracker in its jail, a jailer, a monitor.

    A process counts by what it is, not by its number alone: by the folder it has as its root, or
    by the arguments that name this agent.
    """
    return tuple(found for pid in psutil.pids() if (found := _judge(pid, layout)))


def vmm(layout: Layout) -> Found | None:
    """The running VMM, by its pid file or else by looking at every process."""
    noted = _noted(layout)
    if noted is not None and noted.is_vmm:
        return noted
    return next((each for each in of(layout) if each.is_vmm), None)


def is_vmm_alive(layout: Layout) -> bool:
    """Whether the microVM runs."""
    return vmm(layout) is not None


def has_any_process(layout: Layout) -> bool:
    """Whether the pid file names a process that lives, whoever it is.

    For deleting files this is enough to leave them alone. A pid that was given to a later
    process counts as dead.
    """
    pid, written_at = _pid_file(layout)
    if pid is None:
        return False
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        is_later = process.create_time() > written_at + START_SLACK_SECONDS
        return process.status() != psutil.STATUS_ZOMBIE and not is_later
    return False


def lives(found: Found) -> bool:
    """Whether that very process still runs."""
    with suppress(psutil.Error):
        process = psutil.Process(found.pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() == found.began
    return False


def kill(found: Found) -> None:
    """Kill that very process; nobody else who has its number by now."""
    with suppress(psutil.Error, ProcessLookupError):
        process = psutil.Process(found.pid)
        if process.create_time() == found.began:
            process.send_signal(signal.SIGKILL)


def wait_until(is_so: Callable[[], bool], deadline: Deadline, every_seconds: float = 0.02) -> bool:
    """Wait for something on this machine; whether it came true in time."""
    while not is_so():
        if deadline.has_passed:
            return False
        time.sleep(min(every_seconds, max(0.001, deadline.remaining)))
    return True


def _noted(layout: Layout) -> Found | None:
    pid, written_at = _pid_file(layout)
    if pid is None:
        return None
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.create_time() <= written_at + START_SLACK_SECONDS:
            return _judge(pid, layout)
    return None


def _pid_file(layout: Layout) -> tuple[int | None, float]:
    """The pid that the jailer wrote down, and when (epoch seconds)."""
    try:
        text = layout.pid_file.read_text().strip()
        return (int(text) if text.isdecimal() else None), layout.pid_file.stat().st_mtime
    except (OSError, ValueError):
        return None, 0.0


def _judge(pid: int, layout: Layout) -> Found | None:
    """What the process is to the microVM; None for a stranger, and for one that is over."""
    kind = _kind(pid, layout)
    if kind is None:
        return None
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE and _kind(pid, layout) is kind:
            return Found(pid, process.create_time(), kind)
    return None


def _kind(pid: int, layout: Layout) -> Kind | None:
    """Looked at for every process of the machine, so it reads two small files at the most."""
    try:
        name = _content(f"/proc/{pid}/comm").rstrip(b"\n")
        if name == layout.program.encode()[:COMM_LENGTH] and _is_rooted_in(pid, layout.root):
            return Kind.VMM
        line = _content(f"/proc/{pid}/cmdline")
    except OSError:
        return None
    if layout.agent_id.encode() not in line:
        return None
    arguments = line.split(b"\0")
    if str(layout.home).encode() in arguments:
        return Kind.MONITOR
    pairs = set(pairwise(arguments))
    named = {(b"--id", layout.agent_id.encode()), (b"--chroot-base-dir", str(layout.base).encode())}
    return Kind.JAILER if named <= pairs else None


def _content(path: str) -> bytes:
    """A small file, the quick way; a longer command line is none of ours."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 1 << 16)
    finally:
        os.close(handle)


def _is_rooted_in(pid: int, root: Path) -> bool:
    """Whether the process sees that folder as its `/`; compared by what it is, not by its name,
    since a path means something else in another mount namespace."""
    try:
        seen, wanted = Path(f"/proc/{pid}/root").stat(), root.stat()
    except OSError:
        return False
    return (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino)
