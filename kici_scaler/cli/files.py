"""Scaler files as commands take them: where they lie, and what is told when they are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from kici_scaler.cli.output import print_json
from kici_scaler.errors import KiciError

if TYPE_CHECKING:
    from kici_scaler.scalers_file import InvalidScalerFile, LoadedFile

File = Annotated[
    Path, typer.Argument(envvar="KICI_SCALER_CONFIG_PATH", help="The scaler file.", metavar="PATH")
]
DropIns = Annotated[
    Path | None,
    typer.Option(
        "--dir", envvar="KICI_SCALER_CONFIG_DIR", help="Folder of drop-ins.", metavar="DIR"
    ),
]


def load_or_end(path: Path, directory: Path | None, *, as_json: bool) -> LoadedFile:
    """The loaded file; otherwise its problems are printed and the command ends (1 or 2)."""
    # What checks a file takes time to load, and commands that only ask a gateway need it not.
    from kici_scaler.scalers_file import InvalidScalerFile, load

    try:
        return load(path, directory)
    except InvalidScalerFile as error:
        _end_invalid(error, as_json=as_json)
    except KiciError as error:
        if as_json:
            print_json({"valid": False, "error": str(error), "hint": error.hint})
        else:
            typer.echo(f"error: {error}. {error.hint}".rstrip(), err=True)
        raise typer.Exit(error.exit_code) from error


def counted(count: int, what: str) -> str:
    """`1 scaler`, `2 scalers`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def _end_invalid(error: InvalidScalerFile, *, as_json: bool) -> NoReturn:
    if as_json:
        problems = [problem.as_document() for problem in error.problems]
        print_json({"valid": False, "problems": problems, "notListed": error.not_listed})
    else:
        count = len(error.problems) + error.not_listed
        typer.echo(str(error), err=True)
        typer.echo(counted(count, "mistake"), err=True)
    raise typer.Exit(error.exit_code) from error
