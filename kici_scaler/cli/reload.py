"""`kici-scaler reload`, and the accepted configurations behind `config history` and the like."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kici_scaler.cli import access
from kici_scaler.cli.files import DropIns, load_or_end
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.cli.render import print_table

if TYPE_CHECKING:
    from kici_scaler.cli.operator_client import OperatorClient

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
        _tell(_asked(gateway, "/v1/config/reload", body, as_json=as_json), as_json=as_json)


def history(as_json: AsJson = False) -> None:
    """List accepted configurations: when, from whom, from where, and what changed.

    Example: kici-scaler config history
    """
    with access.operator() as gateway:
        answer = gateway.get("/v1/config/revisions")
    if as_json:
        print_json(answer)
        return
    print_table(
        ("revision", "active", "when", "by", "from", "changed"),
        [
            (each["id"], "yes" if each["active"] else "",
             datetime.fromisoformat(each["createdAt"]), each["author"], each["source"],
             each["summary"])
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
    from kici_scaler.scalers_file.yaml_text import to_yaml

    typer.echo(to_yaml(answer["document"]), nl=False)


def rollback(revision: Revision, as_json: AsJson = False) -> None:
    """Take an earlier configuration over again, as a new revision.

    Example: kici-scaler config rollback 6
    """
    with access.operator() as gateway:
        path = f"/v1/config/revisions/{revision}/rollback"
        _tell(_asked(gateway, path, {}, as_json=as_json), as_json=as_json)


def _asked(gateway: OperatorClient, path: str, body: dict[str, object], *, as_json: bool) -> Any:
    """The gateway's answer; a refusal is printed whole, and the command ends."""
    from kici_scaler.client import Rejected

    try:
        return gateway.post(path, body)
    except Rejected as error:
        if not error.problems:
            raise
        if as_json:
            print_json({"applied": False, "problems": list(error.problems), "hint": error.hint})
        else:
            for each in error.problems:
                typer.echo(_problem_line(each), err=True)
            typer.echo(f"hint: {error.hint}", err=True)
        raise typer.Exit(error.exit_code) from error


def _problem_line(problem: Mapping[str, object]) -> str:
    place = ":".join(str(problem[key]) for key in ("file", "line") if key in problem)
    parts = [place, problem.get("path", ""), problem.get("message", "")]
    value = f" (it is {problem['value']})" if "value" in problem else ""
    hint = f" {problem['hint']}" if "hint" in problem else ""
    return f"{': '.join(str(part) for part in parts if part)}{value}.{hint}"


def _tell(answer: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    for warning in answer["warnings"]:
        typer.echo(f"warning: {warning}")
    for line in _plan_lines(answer) or ["nothing changes"]:
        typer.echo(line)
    for scaler, states in answer["drained"].items():
        typer.echo(f"  {_drain_line(scaler, states, done=answer['applied'])}")
    state = "is active" if answer["applied"] else "stays active"
    typer.echo(f"revision {answer['revision']} {state}")


def _drain_line(scaler: str, states: Mapping[str, int], *, done: bool) -> str:
    """What becomes of the agents of a scaler that leaves."""
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    verb = "retires" if done else "would retire"
    return f"{scaler} {verb} with {sum(states.values())} live agents ({counts})"


def _plan_lines(answer: Any) -> list[str]:
    lines = [f"~ {each}" for each in answer["cluster"]]
    for scaler in answer["scalers"]:
        if scaler["bucket"] == "kept":
            continue
        lines.append(f"{_SIGNS.get(scaler['bucket'], '?')} {scaler['name']} ({scaler['bucket']})")
        lines += [f"    {change}" for change in scaler["changes"]]
    return lines
