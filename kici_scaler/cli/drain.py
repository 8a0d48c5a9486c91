"""`kici-scaler drain`: turn new demand away while running jobs finish."""

from __future__ import annotations

from typing import Any

import typer

from kici_scaler.cli import access
from kici_scaler.cli.output import AsJson, print_json

app = typer.Typer(
    help="Turn new demand away while running jobs finish, or take it again.", no_args_is_help=True
)


@app.command()
def on(as_json: AsJson = False) -> None:
    """Turn new demand away: requests wait, nothing new is started, what runs goes on.

    Example: kici-scaler drain on
    """
    _tell(_set(True), as_json=as_json)


@app.command()
def off(as_json: AsJson = False) -> None:
    """Take demand again; what waited is served now.

    Example: kici-scaler drain off
    """
    _tell(_set(False), as_json=as_json)


@app.command()
def show(as_json: AsJson = False) -> None:
    """Tell whether the cluster drains, and how many jobs still run.

    Example: kici-scaler drain show --json
    """
    with access.operator() as gateway:
        _tell(gateway.get("/v1/drain"), as_json=as_json)


def _set(draining: bool) -> Any:
    with access.operator() as gateway:
        return gateway.post("/v1/drain", {"draining": draining})


def _tell(answer: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    says = "drains: new demand is turned away" if answer["draining"] else "takes new demand"
    typer.echo(f"the cluster {says}; {answer['jobsRunning']} jobs run")
