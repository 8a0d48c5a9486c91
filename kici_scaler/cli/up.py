"""`kici-scaler up`: a whole installation on this machine, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from kici_scaler.cli.failures import read_settings
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.programs import ROLES
from kici_scaler.errors import InvalidInput

SERVERS: Final = "servers"
DEFAULT_PORT: Final = 4000
DEFAULT_FLOWER_PORT: Final = 5555
"""Flower's own default."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up")(up)


def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="KICI_DATA_DIR", help="Folder for data; default: the state folder."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help=f"Comma list of what to run: {', '.join(ROLES)}, or {SERVERS}."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(envvar="KICI_SCALER_CONFIG_PATH", help="scalers.yaml to activate."),
    ] = None,
    config_dir: Annotated[
        Path | None,
        typer.Option(envvar="KICI_SCALER_CONFIG_DIR", help="Folder of further files."),
    ] = None,
    host: Annotated[
        str, typer.Option(envvar="KICI_HOST", help="Address of gateway and Flower.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="KICI_PORT", min=0, max=65535, help="Gateway; 0: any free.")
    ] = DEFAULT_PORT,
    flower_port: Annotated[
        int, typer.Option(envvar="KICI_FLOWER_PORT", min=0, max=65535, help="0: any free.")
    ] = DEFAULT_FLOWER_PORT,
) -> None:
    """Run servers, workers, beat, gateway and Flower on this machine until Ctrl-C.

    Postgres and Redis come with the program; KICI_DATABASE_URL and KICI_REDIS_URL name
    others.
    """
    settings = read_settings()
    log_format = settings.log_format if "log_format" in settings.model_fields_set else "human"
    plan = Plan(
        roles=_chosen(only),
        scaler_file=config,
        scaler_directory=config_dir,
        host=host,
        gateway_port=port,
        flower_port=flower_port,
        database_url=settings.database_url.get_secret_value() or None,
        redis_url=settings.redis_url.get_secret_value() or None,
        environment={"KICI_LOG_FORMAT": log_format},
        announced=True,
    )
    _run(plan, data_dir)


def _run(plan: Plan, data_dir: Path | None) -> None:
    # Everything that runs an installation, imported only now: help must not wait for it.
    from rich.console import Console

    from kici_scaler.cli.running import PrefixedLines, show_places
    from kici_scaler.embedded.folder import default_home
    from kici_scaler.embedded.installation import Installation

    console = Console(highlight=False)
    installation = Installation(plan, data_dir or default_home(), listener=PrefixedLines(console))
    installation.run(lambda ready: show_places(console, ready))
    console.print("stopped")


def _chosen(only: str | None) -> tuple[str, ...] | None:
    """The roles of `--only`; None: all.

    Raises:
        InvalidInput: one is not known.
    """
    if only is None:
        return None
    names = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in (*ROLES, SERVERS)]
    if unknown or not names:
        raise InvalidInput(
            f"--only names {', '.join(unknown) or 'nothing'}",
            hint=f"Choose from {', '.join(ROLES)}, or {SERVERS} for Postgres and Redis alone.",
        )
    return tuple(role for role in ROLES if role in names)
