"""What the commands of machines share: the scaler file as an option, and the backends' context."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from config.settings import Settings
from kici_scaler.domain.scalers import Cluster
from kici_scaler.errors import InvalidInput
from kici_scaler.scalers_file import load
from workers.contract import BackendContext
from workers.machine import local_machine

ScalerFile = Annotated[
    Path | None,
    typer.Option(
        "--config", envvar="KICI_SCALER_CONFIG_PATH", help="The scaler file.", metavar="PATH"
    ),
]


def named_cluster(config: Path | None, directory: Path | None) -> Cluster:
    """What the named file says.

    Raises:
        InvalidInput: none is named.
        KiciError: it cannot be read, or says what cannot be.
    """
    if config is None:
        raise InvalidInput(
            "no scaler file is named", hint="Give --config, or set KICI_SCALER_CONFIG_PATH."
        )
    return load(config, directory).cluster


def context_here(settings: Settings) -> BackendContext:
    """What a worker on this machine would hand to its backends, but for a database."""
    return BackendContext(
        settings.installation_id,
        local_machine(settings.machine_id),
        settings.state_dir,
        dict(os.environ),
    )
