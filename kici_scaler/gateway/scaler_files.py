"""The scaler file that this gateway's settings name, for reloads that bring none."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog
from fastapi import Depends, Request
from sqlalchemy import Engine

from kici_scaler.errors import InvalidInput, KiciError
from kici_scaler.gateway.core import Gateway
from kici_scaler.service import reload
from kici_scaler.service.reload import Candidate
from kici_scaler.store.engine import CommitUnknown

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ScalerFiles:
    """Where this gateway reads a configuration from."""

    path: Path | None = None
    directory: Path | None = None

    def read(self, engine: Engine) -> Candidate:
        """Read and validate it.

        Raises:
            InvalidInput: the settings name none.
            InvalidScalerFile, UnreadableScalerFile: nothing changed.
        """
        if self.path is None:
            raise InvalidInput(
                "this gateway's settings name no scaler file",
                hint="Set KICI_SCALER_CONFIG_PATH, or name a file: `kici-scaler reload PATH`.",
            )
        return reload.read(engine, self.path, self.directory)


def reload_on_hangup(gateway: Gateway, files: ScalerFiles) -> None:
    """Let SIGHUP reload the file; a refusal is logged and changes nothing."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: gateway.spawn(_reload(gateway, files)))


async def _reload(gateway: Gateway, files: ScalerFiles) -> None:
    try:
        candidate = await gateway.threads.http(files.read, gateway.runtime.engine)
        done = await gateway.threads.http(reload.apply, gateway.runtime, candidate, author="SIGHUP")
    except CommitUnknown as error:
        hint = "send the signal again; what is in force already is left as it is"
        log.error("not known whether the reload happened", error=str(error), hint=hint)
    except KiciError as error:
        log.error("reload refused; nothing changed", error=str(error), hint=error.hint)
    else:
        changes = done.plan.summary
        log.info("reloaded", revision=done.revision_id, applied=done.applied, changes=changes)
        for warning in (*done.warnings, *done.unserved):
            log.warning("reloaded, but", warning=warning)


def _files(request: Request) -> ScalerFiles:
    files: ScalerFiles = request.app.state.scaler_files
    return files


ItsFiles = Annotated[ScalerFiles, Depends(_files)]
"""The scaler file of the gateway that serves the request."""
