"""The scaler file at the start of an installation, and which backends it needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kici_scaler import scalers_file
from kici_scaler.domain.scalers import BackendType
from kici_scaler.service import reload, revisions
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.engine import make_engine, transaction

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


def activate(database_url: str, file: Path | None, directory: Path | None) -> Activated:
    """Make the file's content the active configuration; without a file, what was active stays.

    Raises:
        InvalidScalerFile, UnreadableScalerFile, DatabaseUnreachable.
    """
    engine = make_engine(database_url, application="up", pool_size=1)
    warnings: tuple[str, ...] = ()
    try:
        if file is not None:
            candidate = reload.read(engine, file, directory)
            warnings = reload.apply(Runtime(engine, owner="up"), candidate, author="up").warnings
        with transaction(engine) as connection:
            cluster = revisions.active(connection).cluster
    finally:
        engine.dispose()
    if not cluster.scalers:
        return Activated(WITHOUT_SCALERS, (*warnings, "no scaler is configured (--config FILE)"))
    return Activated(tuple(sorted({each.type.value for each in cluster.scalers})), warnings)
