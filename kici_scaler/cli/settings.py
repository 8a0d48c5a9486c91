"""`kici-scaler settings`: live settings, read per use, changed while everything runs."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from kici_scaler.cli import access
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.cli.render import print_details, print_table
from kici_scaler.domain.knobs import written

app = typer.Typer(help="Show and change live settings.", no_args_is_help=True)

Org = Annotated[str | None, typer.Option("--org", help="An organisation instead of the cluster.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name, ours or the reference's.")]


@app.command("list")
def listed(org: Org = None, as_json: AsJson = False) -> None:
    """List every setting with the value that counts and where that comes from.

    Example: kici-scaler settings list --org acme
    """
    with access.operator() as gateway:
        answer = gateway.get("/v1/settings", {"org": org} if org else None)
    if as_json:
        print_json(answer)
        return
    print_table(
        ("setting", "value", "from", "default", "least", "most", "meaning"),
        [
            (each["key"], written(each["value"]), each["source"], written(each["default"]),
             written(each["floor"]), written(each["ceiling"]), each["about"])
            for each in answer["settings"]
        ],
        empty="there are no settings",
    )  # fmt: skip


@app.command()
def get(name: Name, org: Org = None, as_json: AsJson = False) -> None:
    """Show one setting.

    Example: kici-scaler settings get flap_grace_seconds
    """
    with access.operator() as gateway:
        _tell(gateway.get(_path(name, org)), as_json=as_json)


@app.command("set")
def change(
    name: Name,
    value: Annotated[float, typer.Argument(metavar="VALUE", help="The new value.")],
    org: Org = None,
    as_json: AsJson = False,
) -> None:
    """Change a setting; it counts from the next use on, everywhere.

    Under a name of the reference the value is in milliseconds, else in the unit of the name.

    Example: kici-scaler settings set spawn_timeout_seconds 600 --org acme
    """
    if not math.isfinite(value):
        raise typer.BadParameter("is no number that a setting can have")
    with access.operator() as gateway:
        _tell(gateway.put(_path(name, org), {"value": value}), as_json=as_json)


@app.command()
def reset(name: Name, org: Org = None, as_json: AsJson = False) -> None:
    """Go back to what counts without a stored value.

    Example: kici-scaler settings reset spawn_timeout_seconds
    """
    with access.operator() as gateway:
        _tell(gateway.delete(_path(name, org)), as_json=as_json)


def _path(name: str, org: str | None) -> str:
    query = f"?{urlencode({'org': org})}" if org else ""
    return f"/v1/settings/{quote(name, safe='')}{query}"


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _tell(setting: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(setting)
        return
    print_details(
        (
            ("setting", setting["key"]),
            ("value", written(setting["value"])),
            ("from", setting["source"]),
            ("set by", setting["changedBy"]),
            ("set", _moment(setting["changedAt"])),
            ("default", written(setting["default"])),
            ("bounds", f"{written(setting['floor'])} to {written(setting['ceiling'])}"),
            ("meaning", setting["about"]),
        )
    )
