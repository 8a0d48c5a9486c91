"""The scaler file at the start of an installation, and which backends it needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from kici_scaler import scalers_file
from kici_scaler.domain.scalers import BackendType
from kici_scaler.service import reload, revisions
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.engine import transaction
from kici_scaler.store.retiring import all_retiring

WITHOUT_SCALERS: Final = (BackendType.BARE_METAL.value,)
"""Backends to run when no scaler is configured: the one that needs nothing installed."""


@dataclass(frozen=True, slots=True)
class Activated:
    """The backend types that the active configuration uses, and what to mind about it."""

    backends: tuple[str, ...]
    warnings: tuple[str, ...]


def check_file(file: Path | None, directory: Path | None) -> None:
    """Read the file, so that a wrong one stops a start before anything runs.

    Raises:
        InvalidScalerFile, UnreadableScalerFile.
    """
    if file is not None:
        scalers_file.load(file, directory)


def activate(runtime: Runtime, file: Path | None, directory: Path | None) -> Activated:
    """Make the file's content the active configuration; without a file, what was active stays.

    Raises:
        InvalidScalerFile, UnreadableScalerFile, ReloadRejected, DatabaseUnreachable.
    """
    warnings: tuple[str, ...] = ()
    if file is not None:
        candidate = reload.read(runtime.engine, file, directory)
        warnings = reload.apply(runtime, candidate, author="up").warnings
    with transaction(runtime.engine) as connection:
        backends = _backends_in_use(connection)
    if backends:
        return Activated(backends, warnings)
    return Activated(WITHOUT_SCALERS, (*warnings, "no scaler is configured (--config FILE)"))


def _backends_in_use(connection: Connection) -> tuple[str, ...]:
    """Types of the active scalers, and of those that retire as long as agents of theirs live."""
    found = {scaler.type.value for scaler in revisions.active(connection).cluster.scalers}
    for name, revision_id in all_retiring(connection).items():
        scaler = revisions.by_id(connection, revision_id).cluster.scaler(name)
        if scaler is not None:
            found.add(scaler.type.value)
    return tuple(sorted(found))
