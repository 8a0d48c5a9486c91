"""`kici-scaler up`: a whole installation on this machine, until Ctrl-C."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kici_scaler.cli.failures import read_settings
from kici_scaler.embedded.folder import default_home
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.programs import FLOWER_USER
from kici_scaler.embedded.roles import FLOWER, GATEWAY, ROLES
from kici_scaler.errors import InvalidInput

COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green")
SERVERS: Final = "servers"
DEFAULT_PORT: Final = 4000
DEFAULT_FLOWER_PORT: Final = 5555
"""Flower's own default."""
NAME_WIDTH: Final = 11


class PrefixedLines:
    """Prints what children write, each line with its writer's name in a colour of its own."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours = cycle(COLOURS)
        self._colour_of: dict[str, str] = {}
        self._unheard = False

    def line(self, name: str, text: str) -> None:
        """Print what a child wrote."""
        self._print(name, Text.from_ansi(text))

    def event(self, name: str, text: str) -> None:
        """Print what became of a child."""
        self._print(name, Text(text, style="bold"))

    def _print(self, name: str, text: Text) -> None:
        if self._unheard:
            return
        if name not in self._colour_of:
            self._colour_of[name] = next(self._colours)
        prefix = (f"{name:>{NAME_WIDTH}} | ", self._colour_of[name])
        try:
            self._console.print(Text.assemble(prefix, text), soft_wrap=True)
        except (OSError, SystemExit):  # nobody reads any more; children must not notice
            self._unheard = True


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
    console = Console(highlight=False)
    installation = Installation(plan, data_dir or default_home(), listener=PrefixedLines(console))
    installation.run(lambda ready: _show(console, ready))
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


def _show(console: Console, installation: Installation) -> None:
    """What runs where."""
    profile = installation.profile
    places = {
        GATEWAY: profile.gateway_url or "",
        FLOWER: f"{profile.flower_url} (user {FLOWER_USER}, {profile.flower_password_path})",
        "postgres": _address(profile.database_url.get_secret_value()),
        "redis": _address(profile.redis_url.get_secret_value()),
    }
    table = Table(title="kici-scaler runs; Ctrl-C stops it", title_justify="left")
    for heading in ("what", "pid", "where"):
        table.add_column(heading, overflow="fold")
    pids = installation.pids()
    for server in ("postgres", "redis"):
        if server not in pids:
            table.add_row(server, "-", f"{places[server]} (not ours)")
    for name, pid in pids.items():
        table.add_row(name, str(pid), places.get(name, ""))
    table.add_section()
    table.add_row("data", "", str(profile.data_dir))
    table.add_row("API key", "", str(profile.api_key_path))
    for warning in installation.warnings:
        console.print(Text.assemble(("warning: ", "bold yellow"), warning), soft_wrap=True)
    console.print(table)


def _address(url: str) -> str:
    return url.rpartition("@")[2] or url
