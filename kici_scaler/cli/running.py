"""What a person sees of a running installation: its lines, and a table of what runs where."""

from __future__ import annotations

from itertools import cycle
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.programs import FLOWER, FLOWER_USER, GATEWAY

COLOURS: Final = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green")
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


def show_places(console: Console, installation: Installation) -> None:
    """Print what runs where, and what to mind."""
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
    table.add_row("keys", "", f"{profile.api_key_path}, {profile.dispatcher_key_path}")
    for warning in installation.warnings:
        console.print(Text.assemble(("warning: ", "bold yellow"), warning), soft_wrap=True)
    console.print(table)


def _address(url: str) -> str:
    return url.rpartition("@")[2] or url
