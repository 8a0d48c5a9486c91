"""`kici-scaler diagnose` and `timeline`: how the cluster does, and one agent's way through it."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from kici_scaler.cli import access
from kici_scaler.cli.config import AsJson, print_json
from kici_scaler.cli.render import print_table
from kici_scaler.errors import ExitCode

_EXITS = {"pass": ExitCode.OK, "warn": ExitCode.OK, "fail": ExitCode.INVALID}
_STATES = (
    "requested", "reserved", "spawning", "booting", "idle", "busy", "destroying", "gone",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(diagnose)
    app.command()(timeline)


def diagnose(as_json: AsJson = False) -> None:
    """Say how the cluster does: scalers, sweep, machines, what could not be torn down.

    Ends with 1 when anything fails, 2 when nothing can be said.

    Example: kici-scaler diagnose --json
    """
    with access.operator() as gateway:
        answer = gateway.get("/v1/diagnosis")
    if as_json:
        print_json(answer)
    else:
        print_table(
            ("what", "health", "finding"),
            [(row["name"], row["health"], row["message"]) for row in answer["rows"]],
            empty="nothing to say",
        )
    raise typer.Exit(_EXITS[answer["health"]])


def timeline(
    agent_id: Annotated[str, typer.Argument(metavar="ID", help="The agent's id.")],
    as_json: AsJson = False,
) -> None:
    """Show an agent's way: when it entered each state, how long it stayed, what happened.

    Example: kici-scaler timeline scaler-container-0123456789ab
    """
    with access.operator() as gateway:
        agent = gateway.get(f"/v1/agents/{quote(agent_id, safe='')}")
    if as_json:
        print_json(agent)
        return
    rows = [*_states_of(agent), *_events_of(agent)]
    print_table(
        ("when", "what", "detail"),
        sorted(rows, key=lambda row: str(row[0])),
        empty="nothing is known",
    )


def _states_of(agent: Any) -> list[tuple[str, str, str]]:
    timings = (agent.get("outcome") or agent.get("live") or agent).get("timings") or {}
    return [(str(timings[name]), name, "") for name in _STATES if timings.get(name)]


def _events_of(agent: Any) -> list[tuple[str, str, str]]:
    return [
        (str(event["at"]), event["type"], (event.get("detail") or "").splitlines()[0])
        for event in agent.get("events") or []
        if (event.get("detail") or event["type"])
    ]
