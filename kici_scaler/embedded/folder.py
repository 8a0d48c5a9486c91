"""The data folder of an installation: where it is and who works on it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kici_scaler.embedded.account import account_for, closed_folder


def make_temporary_home(prefix: str) -> Path:
    """A new folder for a passing installation, reachable by the servers' account."""
    home = Path(tempfile.mkdtemp(prefix=prefix))
    account = account_for(home / "postgres")
    open_up(home)
    if account is None or closed_folder(home, account) is None:
        return home
    home.rmdir()
    home = Path(tempfile.mkdtemp(prefix=prefix, dir="/var/tmp"))
    open_up(home)
    return home


def open_up(home: Path) -> None:
    """Let the servers' account pass through a folder that nobody else may list."""
    home.chmod(0o711 if os.geteuid() == 0 else 0o700)
