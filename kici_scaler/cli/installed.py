"""Commands that other packages bring, each loaded when it is used or help is asked for."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup

GROUP = "kici_scaler.commands"
"""The entry point group; a name is the command's, its value a `typer.Typer` of one command."""


class WithInstalledCommands(TyperGroup):
    """A group whose own commands are joined by those of installed packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Its own in their order, then the others by name."""
        own = super().list_commands(ctx)
        return [*own, *sorted(set(_installed()) - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None when there is none."""
        found = super().get_command(ctx, cmd_name)
        if found is not None or cmd_name not in _installed():
            return found
        command = typer.main.get_command(_installed()[cmd_name].load())
        command.name = cmd_name
        return command


def _installed() -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=GROUP)}
