"""Commands that other packages bring, each loaded when it is used or help is asked for."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

GROUP = "kici_scaler.commands"
"""The entry point group; a name is the command's, its value a `typer.Typer` of one command."""
MACHINES_GROUP = f"{GROUP}.machines"
"""The same, for the commands below `machines`."""


class WithInstalledCommands(TyperGroup):
    """A group whose own commands are joined by those of installed packages."""

    entry_points: ClassVar[str] = GROUP

    def list_commands(self, ctx: Any) -> list[str]:
        """Its own in their order, then the others by name."""
        own = super().list_commands(ctx)
        return [*own, *sorted(set(_installed(self.entry_points)) - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None when there is none."""
        found = super().get_command(ctx, cmd_name)
        installed = _installed(self.entry_points)
        if found is not None or cmd_name not in installed:
            return found
        command = typer.main.get_command(installed[cmd_name].load())
        command.name = cmd_name
        return command


class WithInstalledMachineCommands(WithInstalledCommands):
    """Machines can be looked at by who can reach them, which the core cannot."""

    entry_points = MACHINES_GROUP


def _installed(group: str) -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=group)}
