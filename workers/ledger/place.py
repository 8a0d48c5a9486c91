"""Where the ledger's files are: one folder for every installation of a machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from kici_scaler.errors import Unavailable

VARIABLE = "KICI_MACHINE_LEDGER_DIR"


class NoLedgerFolder(Unavailable):
    """No folder for the machine's ledger can be written."""


def ledger_directory(environment: Mapping[str, str]) -> Path:
    """The folder named by the environment, else the first of the usual ones that is writable.

    Raises:
        NoLedgerFolder: none can be written; a probe file is the proof.
    """
    tried = list(_candidates(environment))
    for folder in tried:
        if _is_writable(folder):
            return folder
    raise NoLedgerFolder(
        f"no folder for the machine ledger can be written: {', '.join(map(str, tried))}",
        hint=f"make one of them writable, or name another by {VARIABLE}",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    named = environment.get(VARIABLE)
    if named:
        yield Path(named)
        return
    yield Path("/var/lib/kici/scaler-ledger")
    state = environment.get("XDG_STATE_HOME")
    home = Path(state) if state else Path.home() / ".local/state"
    yield home / "kici/scaler-ledger"
    yield Path(tempfile.gettempdir()) / "kici-scaler-ledger"


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
