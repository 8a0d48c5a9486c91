"""What every command that answers with data shares: an option for programs, and JSON."""

from __future__ import annotations

import json
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def print_json(value: object) -> None:
    """Readable JSON on standard output."""
    typer.echo(json.dumps(value, indent=2, default=str))
