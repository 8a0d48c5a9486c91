"""`kici-scaler scalers` and `machines`: what there is, and taking it out for a while."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from kici_scaler.cli import access
from kici_scaler.cli.installed import WithInstalledMachineCommands
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.cli.render import console
from kici_scaler.errors import InvalidInput

app = typer.Typer(help="List scalers; pause, drain and resume them.", no_args_is_help=True)
machines = typer.Typer(
    cls=WithInstalledMachineCommands,
    help="List machines; add and check, drain and resume them.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The scaler's name.")]
MachineId = Annotated[str, typer.Argument(metavar="ID", help="The machine's id.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it stands in the status.")]


@app.command("list")
def listed(as_json: AsJson = False) -> None:
    """List scalers with what they hold, those too that left the configuration and still retire.

    Example: kici-scaler scalers list
    """
    _show("backends", as_json=as_json)


@app.command()
def pause(name: Name, reason: Reason = "", as_json: AsJson = False) -> None:
    """Give a scaler nothing new; what runs goes on, what waits may go elsewhere.

    Example: kici-scaler scalers pause gpu --reason "driver update"
    """
    _post(f"/v1/scalers/{quote(name, safe='')}/pause", {"reason": reason}, as_json=as_json)


@app.command()
def drain(name: Name, reason: Reason = "", as_json: AsJson = False) -> None:
    """Pause a scaler, give back what has not begun, end what idles; jobs go on.

    Example: kici-scaler scalers drain gpu
    """
    _post(f"/v1/scalers/{quote(name, safe='')}/drain", {"reason": reason}, as_json=as_json)


@app.command()
def resume(name: Name, as_json: AsJson = False) -> None:
    """Let a scaler take work again, and forget its failures.

    Example: kici-scaler scalers resume gpu
    """
    _post(f"/v1/scalers/{quote(name, safe='')}/resume", {}, as_json=as_json)


@machines.command("list")
def list_machines(as_json: AsJson = False) -> None:
    """List machines with their state, what they hold, and what they cannot run.

    Example: kici-scaler machines list
    """
    _show("machines", as_json=as_json)


@machines.command("drain")
def drain_machine(machine: MachineId, as_json: AsJson = False) -> None:
    """Give a machine nothing new, for maintenance; its agents go on.

    Example: kici-scaler machines drain build-7
    """
    _post(f"/v1/machines/{quote(machine, safe='')}/drain", {}, as_json=as_json)


@machines.command("resume")
def resume_machine(machine: MachineId, as_json: AsJson = False) -> None:
    """Let a machine take work again.

    Example: kici-scaler machines resume build-7
    """
    _post(f"/v1/machines/{quote(machine, safe='')}/resume", {}, as_json=as_json)


@machines.command("forget")
def forget_machine(
    machine: MachineId,
    gone: Annotated[
        bool,
        typer.Option("--compute-is-gone", help="You know that nothing runs there any more."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Drop a machine that will not come back, and every agent on it; their jobs go on elsewhere.

    Example: kici-scaler machines forget build-7 --compute-is-gone
    """
    if not gone:
        raise InvalidInput(
            f"forgetting machine `{machine}` is only right when nothing runs there any more",
            hint="Say so with --compute-is-gone.",
        )
    with access.operator() as gateway:
        answer = gateway.post(f"/v1/machines/{quote(machine, safe='')}/forget")
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{answer['subject']}: forgotten with {answer['agents']} agents")


def _show(part: Literal["backends", "machines"], *, as_json: bool) -> None:
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.cli.pages import machines_page, scalers_page
    from kici_scaler.gateway.models_status import StatusView

    with access.operator() as gateway:
        answer = gateway.get("/v1/status")
    if as_json:
        print_json(answer[part])
        return
    page = scalers_page if part == "backends" else machines_page
    console().print(page(parsed(StatusView, answer)))


def _post(path: str, body: dict[str, object], *, as_json: bool) -> None:
    with access.operator() as gateway:
        answer: Any = gateway.post(path, body)
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{answer['subject']}: {answer['done']}")
