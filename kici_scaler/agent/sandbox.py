"""An optional wall around the command, by bubblewrap, where nothing else isolates it.

It is for agents that are plain processes of a shared machine (`KICI_SANDBOX=true`); in a
container or a virtual machine the wall is already there.
"""

from __future__ import annotations

from pathlib import Path

PROGRAM = "bwrap"


def sandboxed(command: tuple[str, ...], work_dir: Path, state_dir: Path) -> tuple[str, ...]:
    """The command behind a wall: it reads the machine's files, writes only its own folder
    and an empty `/tmp`, sees only its own processes, and not the agent's spool.

    The network is the machine's. bubblewrap stays in the command's group and is not told to
    die with its parent: a command that is stopped keeps its grace, and the keeper ends
    whatever is left.
    """
    return (
        PROGRAM,
        "--unshare-pid",
        "--unshare-ipc",
        *("--ro-bind", "/", "/"),
        *("--dev", "/dev"),
        *("--proc", "/proc"),
        *("--tmpfs", "/tmp"),
        *("--tmpfs", str(state_dir)),
        *("--bind", str(work_dir), str(work_dir)),
        *("--chdir", str(work_dir)),
        "--",
        *command,
    )
