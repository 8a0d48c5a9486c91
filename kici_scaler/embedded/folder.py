"""The data folder of an installation: where it is, what lies where, who works on it.

instance.lock, instance.json   held, and written, by the one instance on this folder
local.json                     how to reach the running instance (see `profile`)
ports.json                     ports of the last start, used again when they are free
secrets/  postgres/  redis/    passwords and keys; the data of the two servers
machine/                       what the workers of this machine remember
run/  logs/  programs/         readiness marks; output; programs the servers' account can run
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import filelock
from platformdirs import user_state_path

from kici_scaler.embedded.account import account_for, closed_folder
from kici_scaler.embedded.errors import FolderInUse, UnusableFolder, told_of

APPLICATION: Final = "kici-scaler"
SYSTEM_HOME: Final = Path("/var/lib") / APPLICATION
LOCK: Final = "instance.lock"
HOLDER: Final = "instance.json"


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Places in the data folder `home`."""

    home: Path

    @property
    def run(self) -> Path:
        """Readiness marks of roles."""
        return self.home / "run"

    @property
    def logs(self) -> Path:
        """Output of every process, one file each."""
        return self.home / "logs"

    @property
    def machine(self) -> Path:
        """State of the workers of this machine."""
        return self.home / "machine"

    def ready_file(self, role: str) -> Path:
        """The file that a role creates once it does its work."""
        return self.run / f"{role}.ready"


def user_home() -> Path:
    """The user's own state folder of this program, by the XDG rules."""
    return user_state_path(APPLICATION)


def default_home() -> Path:
    """Where data goes when nobody says where.

    Root's home is usually closed to the account of the servers; then the system's folder for
    the data of services is the place.
    """
    home = user_home() / "local"
    account = account_for(home / "postgres")
    return home if closed_folder(home.parent, account) is None else SYSTEM_HOME


def make_temporary_home(prefix: str) -> Path:
    """A new folder for a passing installation, reachable by the servers' account."""
    home = Path(tempfile.mkdtemp(prefix=prefix))
    _open_up(home)
    if closed_folder(home, account_for(home / "postgres")) is None:
        return home
    home.rmdir()
    home = Path(tempfile.mkdtemp(prefix=prefix, dir="/var/tmp"))
    _open_up(home)
    return home


@contextmanager
def claimed(home: Path) -> Iterator[DataFolder]:
    """Make the folder where missing and hold it: one instance a folder.

    The lock belongs to this process and goes with it, however it ends.

    Raises:
        FolderInUse: another instance holds it; the message says which.
        UnusableFolder: it cannot be written, or holds something else.
    """
    home = home.absolute()
    folder = DataFolder(home)
    lock = filelock.FileLock(home / LOCK, timeout=0)
    try:
        with told_of(home):
            _make(home)
            _acquire(lock, home)
            _write_holder(home)
            for place in (folder.run, folder.logs, folder.machine):
                place.mkdir(mode=0o700, exist_ok=True)
        yield folder
    finally:
        lock.release()


def _acquire(lock: filelock.BaseFileLock, home: Path) -> None:
    try:
        lock.acquire()
    except filelock.Timeout:
        raise FolderInUse(
            f"the data folder {home} is in use by {_holder(home)}",
            hint="Stop that instance, or start on another folder with --data-dir.",
        ) from None


def _make(home: Path) -> None:
    if home.exists() and not home.is_dir():
        raise UnusableFolder(f"{home} is not a folder", hint="Choose another --data-dir.")
    if home.is_dir() and not (home / LOCK).exists() and any(home.iterdir()):
        raise UnusableFolder(
            f"{home} holds something else than the data of kici-scaler",
            hint="Choose an empty or a new folder with --data-dir.",
        )
    home.mkdir(parents=True, exist_ok=True)
    if home.stat().st_uid == os.geteuid():
        _open_up(home)


def _open_up(home: Path) -> None:
    """Let the servers' account pass through a folder that nobody else may list."""
    home.chmod(0o711 if os.geteuid() == 0 else 0o700)


def _write_holder(home: Path) -> None:
    holder = {
        "pid": os.getpid(),
        "command": " ".join(sys.argv),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    (home / HOLDER).write_text(json.dumps(holder) + "\n")


def _holder(home: Path) -> str:
    try:
        holder = json.loads((home / HOLDER).read_text())
        return f"{holder['command']} (pid {holder['pid']}, since {holder['since']})"
    except (OSError, ValueError, KeyError):
        return "another instance"
