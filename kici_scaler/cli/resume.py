"""`kici-scaler resume`: let a cluster go on after its database failed over."""

from __future__ import annotations

import typer

from kici_scaler.cli import access
from kici_scaler.cli.output import AsJson, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(resume)


def resume(as_json: AsJson = False) -> None:
    """Let admission and reclaim go on after the database failed over to another timeline.

    The last commits before a failover may be lost. `kici-scaler diagnose` tells that things are
    held back; look at `agents list` and at the machines first. From then on compute that no row
    stands for is removed, with the job it may run.

    Example: kici-scaler resume
    """
    with access.operator() as gateway:
        answer = gateway.post("/v1/resume")
    if as_json:
        print_json(answer)
    elif answer["resumed"]:
        typer.echo("admission and reclaim go on")
    else:
        typer.echo("nothing was held back")
