"""`kici-scaler diagnose` and `timeline`: how the cluster does, and one agent's way through it."""

from __future__ import annotations

import os
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any
from urllib.parse import quote

import typer

from kici_scaler.cli import access
from kici_scaler.cli.failures import read_settings
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.cli.render import print_table, span
from kici_scaler.errors import ExitCode, Unavailable

_EXITS = {"pass": ExitCode.OK, "warn": ExitCode.OK, "fail": ExitCode.INVALID}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(diagnose)
    app.command()(timeline)


def diagnose(as_json: AsJson = False) -> None:
    """Say how the cluster does: scalers, sweep, machines, what could not be torn down.

    Ends with 1 when anything fails, 2 when nothing can be said. Without a gateway the rows are
    read where `KICI_DATABASE_URL` names them, or from the instance that runs here.

    Example: kici-scaler diagnose --json
    """
    answer = _asked()
    if as_json:
        print_json(answer)
    else:
        print_table(
            ("what", "health", "finding"),
            [(row["name"], row["health"], row["message"]) for row in answer["rows"]],
            empty="nothing to say",
        )
    raise typer.Exit(_EXITS[answer["health"]])


def _asked() -> Any:
    """What a gateway says, or else the rows."""
    from kici_scaler.client import Unanswered

    try:
        with access.operator() as gateway:
            return gateway.get("/v1/diagnosis")
    except (Unanswered, Unavailable) as error:
        url = _database_url()
        if not url:
            raise
        typer.echo(f"{error}; the rows say:", err=True)
        return _read(url)


def _database_url() -> str:
    """Of the cluster that was asked; never of an instance here when another gateway is named."""
    named = read_settings().database_url.get_secret_value()
    profile = None if named or access.URL_VARIABLE in os.environ else access.local_instance()
    return named if profile is None else profile.database_url.get_secret_value()


def _read(url: str) -> Any:
    from kici_scaler.gateway.routes_operator import DiagnosisView
    from kici_scaler.service import diagnose as service
    from kici_scaler.service.runtime import Runtime
    from kici_scaler.store.engine import make_engine

    engine = make_engine(url, application="diagnose", pool_size=1)
    try:
        rows = service.diagnosis(Runtime(engine, "diagnose"))
    finally:
        engine.dispose()
    return DiagnosisView.of(rows).model_dump(mode="json", by_alias=True)


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
