"""`kici-scaler reload`, and the accepted configurations behind `config history` and the like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kici_scaler.cli import access
from kici_scaler.cli.config import AsJson, DropIns, load_or_end, print_json
from kici_scaler.cli.render import print_table
from kici_scaler.scalers_file.yaml_text import to_yaml

_SIGNS = {
    "added": "+",
    "removed": "-",
    "changed": "~",
    "resurrected": "+",
    "kept": "=",
}

Revision = Annotated[int, typer.Argument(metavar="REV", min=1, help="The revision's number.")]


def register(app: typer.Typer, config: typer.Typer) -> None:
    """Add the commands."""
    app.command("reload")(reload)
    config.command("history")(history)
    config.command("rollback")(rollback)


def reload(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="The scaler file; the gateway's own without it."),
    ] = None,
    directory: DropIns = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what would happen; nothing is written.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take a configuration over whole, or refuse it whole.

    Ends with 1 when it is refused; then nothing has changed.

    Example: kici-scaler reload scalers.yaml --plan
    """
    body: dict[str, object] = {"plan": plan}
    if path is not None:
        loaded = load_or_end(path, directory, as_json=as_json)
        body |= {"document": dict(loaded.document), "source": str(path)}
    with access.operator() as gateway:
        _tell(gateway.post("/v1/config/reload", body), as_json=as_json)


def history(as_json: AsJson = False) -> None:
    """List accepted configurations: when, from whom, from where.

    Example: kici-scaler config history
    """
    with access.operator() as gateway:
        answer = gateway.get("/v1/config/revisions")
    if as_json:
        print_json(answer)
        return
    print_table(
        ("revision", "active", "when", "by", "from", "digest"),
        [
            (each["id"], "yes" if each["active"] else "", each["createdAt"], each["author"],
             each["source"], each["digest"][:12])
            for each in answer["revisions"]
        ],
        empty="no configuration was accepted yet",
    )  # fmt: skip


def show_revision(revision: int, *, as_json: bool) -> None:
    """Print one accepted configuration, and what it changed."""
    with access.operator() as gateway:
        answer = gateway.get(f"/v1/config/revisions/{revision}")
    if as_json:
        print_json(answer)
        return
    for line in _plan_lines(answer):
        typer.echo(f"# {line}")
    typer.echo(to_yaml(answer["document"]), nl=False)


def rollback(revision: Revision, as_json: AsJson = False) -> None:
    """Take an earlier configuration over again, as a new revision.

    Example: kici-scaler config rollback 6
    """
    with access.operator() as gateway:
        _tell(gateway.post(f"/v1/config/revisions/{revision}/rollback"), as_json=as_json)


def _tell(answer: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    for warning in answer["warnings"]:
        typer.echo(f"warning: {warning}")
    for line in _plan_lines(answer):
        typer.echo(line)
    for scaler, live in answer["drained"].items():
        typer.echo(f"  {scaler} has {live} live agents; it retires when the last is gone")
    state = "is active" if answer["applied"] else "stays active"
    typer.echo(f"revision {answer['revision']} {state}")


def _plan_lines(answer: Any) -> list[str]:
    lines = [f"~ {each}" for each in answer["cluster"]]
    for scaler in answer["scalers"]:
        if scaler["bucket"] == "kept":
            continue
        lines.append(f"{_SIGNS.get(scaler['bucket'], '?')} {scaler['name']} ({scaler['bucket']})")
        lines += [f"    {change}" for change in scaler["changes"]]
    return lines
