"""Named moments at which a process may be told to die or freeze, for fault tests.

Nothing happens unless `KICI_CHECKPOINT_DIR` names a folder; then a file there with the
name of a checkpoint holds what the first process to reach it does: `kill` (as `kill -9`)
or `stop` (as SIGSTOP, until somebody sends SIGCONT). Reaching it uses the file up.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

VARIABLE = "KICI_CHECKPOINT_DIR"
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_folder = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None

ALL = (
    "intake.received",
    "intake.stored",
    "admit.received",
    "admit.reserved",
    "admit.committed",
    "spawn.received",
    "start.taken",
    "start.acted",
    "start.applied",
    "register.committed",
    "accept.committed",
    "finish.committed",
    "destroy.received",
    "destroy.taken",
    "destroy.acted",
    "destroy.applied",
    "inspect.received",
    "inspect.looked",
    "sweep.received",
    "sweep.looked",
    "sweep.picked",
    "sweep.committed",
)
"""Every checkpoint: which step, and what it has just done."""

OF_POOLS = ("fill.received", "fill.planned", "fill.committed")
"""Those of keeping agents ready ahead of demand."""

OF_PROVISIONS = ("claim.consumed", "deliver.taken", "deliver.acted", "deliver.applied")
"""Those of machines that are asked for and taken away by events."""

OF_RELOADS = ("reload.prepared", "reload.committed")
"""Those of a configuration that takes over."""


def reached(name: str) -> None:
    """Do what is armed for this moment, once; usually nothing."""
    if _folder is None:
        return
    armed = _folder / name
    used = armed.with_name(f"{name}.used-{os.getpid()}")
    try:
        armed.rename(used)
    except OSError:
        return
    os.kill(os.getpid(), _SIGNALS[used.read_text().strip()])
