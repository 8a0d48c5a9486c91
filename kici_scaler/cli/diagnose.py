"""`kici-scaler diagnose` and `timeline`: how the cluster does, and one agent's way through it."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any
from urllib.parse import quote

import typer

from kici_scaler.cli import access
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.cli.render import print_table, span
from kici_scaler.errors import ExitCode

_EXITS = {"pass": ExitCode.OK, "warn": ExitCode.OK, "fail": ExitCode.INVALID}


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
    """Each state with the time that was spent in it; the last one goes on, or is the end."""
    timings = dict((agent["outcome"] or {}).get("timings") or {})
    timings |= (agent["agent"] or {}).get("timings") or {}
    ordered = sorted(timings.items(), key=lambda each: str(each[1]))
    stays = [_between(at, after) for (_, at), (_, after) in pairwise(ordered)]
    return [
        (str(at), name, stay)
        for (name, at), stay in zip(ordered, [*stays, ""][: len(ordered)], strict=True)
    ]


def _between(begin: str, end: str) -> str:
    seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    return f"for {span(seconds)}"


def _events_of(agent: Any) -> list[tuple[str, str, str]]:
    return [
        (str(event["at"]), event["type"], event["detail"].partition("\n")[0])
        for event in agent["events"]
    ]
