"""`kici-scaler status`, `capacity`, `can-serve`: the cluster at one moment."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from kici_scaler.cli import access, render
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.domain.scalers import Role
from kici_scaler.errors import ExitCode

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kici_scaler.cli.operator_client import OperatorClient

WATCH_SECONDS = 2.0
STATUS = "/v1/status"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(status)
    app.command()(capacity)
    app.command("can-serve")(can_serve)


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Anew until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show requests, scalers, machines and gateways, all of one moment.

    With --watch and --json, one JSON object a line.

    Example: kici-scaler status --watch
    """
    with access.operator() as gateway:
        if watch:
            _watch(gateway, as_json=as_json)
        elif as_json:
            print_json(gateway.get(STATUS))
        else:
            render.console().print(_page(gateway))


def capacity(as_json: AsJson = False) -> None:
    """Show what each scaler could still take; retiring ones are left out.

    Example: kici-scaler capacity --json
    """
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.cli.pages import capacity_page
    from kici_scaler.gateway.models_status import CapacityView

    with access.operator() as gateway:
        answer = gateway.get("/v1/capacity")
    if as_json:
        print_json(answer)
    else:
        render.console().print(capacity_page(parsed(CapacityView, answer)))


def can_serve(
    labels: Annotated[str, typer.Option(help="What the job asks for: linux,gpu.")],
    exclude: Annotated[str, typer.Option(help="Labels its agent must not offer.")] = "",
    cpus: Annotated[float | None, typer.Option(help="CPUs it needs.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory it needs: 512m, 4Gi.")] = None,
    image: Annotated[bool, typer.Option("--image", help="It brings its own image.")] = False,
    role: Annotated[Role | None, typer.Option(help="Work besides ordinary jobs.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether any scaler can ever serve such a job, and for each other one why not.

    Ends with 1 when none can.

    Example: kici-scaler can-serve --labels linux,gpu
    """
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.cli.pages import can_serve_page
    from kici_scaler.gateway.models_routing import CanServeView

    asked = {"labels": labels, "exclude": exclude, "cpus": cpus, "memory": memory,
             "image": "true" if image else None, "role": role}  # fmt: skip
    with access.operator() as gateway:
        query = {name: str(value) for name, value in asked.items() if value}
        answer = gateway.get("/v1/can-serve", query)
    found = parsed(CanServeView, answer)
    if as_json:
        print_json(answer)
    else:
        render.console().print(can_serve_page(found))
    if not found.served:
        raise typer.Exit(ExitCode.INVALID)


def _page(gateway: OperatorClient) -> RenderableType:
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.cli.pages import status_page
    from kici_scaler.gateway.models_status import StatusView

    return status_page(parsed(StatusView, gateway.get(STATUS)))


def _watch(gateway: OperatorClient, *, as_json: bool) -> None:
    """Until Ctrl-C, which is the ordinary end; a gateway that restarts is waited for."""
    from rich.live import Live
    from rich.text import Text

    from kici_scaler.client import Unanswered

    try:
        if as_json:
            while True:
                typer.echo(json.dumps(gateway.get(STATUS)))
                time.sleep(WATCH_SECONDS)
        with Live(_page(gateway), console=render.console(), auto_refresh=False) as live:
            while True:
                time.sleep(WATCH_SECONDS)
                try:
                    live.update(_page(gateway), refresh=True)
                except Unanswered as error:
                    live.update(Text(str(error), style="bold red"), refresh=True)
    except KeyboardInterrupt:
        return
