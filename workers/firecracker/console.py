"""What a guest's console tells: why it did not boot, how its agent ended; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

EXIT_MARK = "kici-agent-exit:"
"""With it `/init` says, as its last line, which exit code the agent had."""

LONGEST_EVIDENCE = 160

_EXIT = re.compile(rf"^{EXIT_MARK}\s*(\d{{1,3}})\s*$")


class BootFailure(StrEnum):
    """What kept a guest from running its agent."""

    KERNEL_PANIC = "kernel-panic"
    INIT = "init-failure"
    ROOTFS_MOUNT = "rootfs-mount-failure"
    UNKNOWN = "unknown"


_MARKS: Sequence[tuple[BootFailure, tuple[str, ...]]] = (
    (BootFailure.KERNEL_PANIC, ("Kernel panic", "not syncing")),
    (BootFailure.INIT, ("Failed to execute /init", "failed to start", "systemd[1]: Failed")),
    (BootFailure.ROOTFS_MOUNT, ("VFS: Unable to mount root fs",)),
)
"""In the order in which they count; a root that cannot be mounted ends in a panic, and is one."""

_MEANINGS = {
    BootFailure.KERNEL_PANIC: "its kernel panicked",
    BootFailure.INIT: "its /init could not be run",
    BootFailure.ROOTFS_MOUNT: "its root file system could not be mounted",
    BootFailure.UNKNOWN: "nothing on its console says why",
}


def is_alarming(line: str) -> bool:
    """Whether a line of the console is one of those that tell of a failed boot."""
    return any(mark in line for _, marks in _MARKS for mark in marks) and not _is_json(line)


def classify(lines: Iterable[str]) -> BootFailure:
    """Why a guest did not boot, by its whole console; lines of the agent's own log are no sign."""
    text = "\n".join(line for line in lines if not _is_json(line))
    for failure, marks in _MARKS:
        if any(mark in text for mark in marks):
            return failure
    return BootFailure.UNKNOWN


def told(failure: BootFailure, lines: Iterable[str]) -> str:
    """The failure in a few words, with the line of the console that says it first."""
    marks = dict(_MARKS).get(failure, ())
    shows = (line for line in lines if not _is_json(line) and any(mark in line for mark in marks))
    evidence = next(shows, "")
    said = f"{failure.value}: {_MEANINGS[failure]}"
    return f"{said}: `{evidence[:LONGEST_EVIDENCE]}`" if evidence else said


def lines_of(content: bytes) -> tuple[str, ...]:
    """The lines in what a console printed, whatever bytes a guest sent."""
    text = content.decode(errors="replace").replace("\x00", "")
    return tuple(line.rstrip("\r") for line in text.split("\n") if line.rstrip("\r"))


def printed(lines: Iterable[str]) -> tuple[str, ...]:
    """What is for people: the lines without the one that tells the exit code."""
    return tuple(line for line in lines if not _EXIT.match(line))


def exit_code(lines: Sequence[str]) -> int | None:
    """The code that `/init` told last; None when it told none."""
    for line in reversed(lines):
        if found := _EXIT.match(line):
            return int(found.group(1))
    return None


def _is_json(line: str) -> bool:
    if not line.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
