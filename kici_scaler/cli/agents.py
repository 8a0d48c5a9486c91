"""`kici-scaler agents`: what runs, what became of it, what it printed, and its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from kici_scaler.cli import access, render
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.errors import InvalidInput

if TYPE_CHECKING:
    from kici_scaler.cli.operator_client import OperatorClient
    from kici_scaler.gateway.models_agents import (
        AgentDetail,
        AgentView,
        OutcomeView,
        StaticAgentView,
    )

app = typer.Typer(help="List, show and destroy agents; read what they print.", no_args_is_help=True)

AgentId = Annotated[str, typer.Argument(help="The id of the agent.", metavar="AGENT")]


@app.command("list")
def list_agents(
    scaler: Annotated[str | None, typer.Option(help="Only of this scaler.")] = None,
    state: Annotated[
        list[SpawnState] | None, typer.Option(help="Only in this state; may be repeated.")
    ] = None,
    gone: Annotated[
        int, typer.Option(min=0, max=1000, help="Also so many of the last that are gone.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """List the agents that exist, the oldest first.

    Example: kici-scaler agents list --gone 10
    """
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.gateway.models_agents import AgentList

    query: dict[str, str | int | list[str]] = {"gone": gone}
    query |= {"scaler": scaler} if scaler else {}
    query |= {"state": [each.value for each in state]} if state else {}
    with access.operator() as gateway:
        answer = gateway.get("/v1/agents", query)
    if as_json:
        print_json(answer)
        return
    found = parsed(AgentList, answer)
    rows = [
        *map(_live_row, found.agents), *map(_static_row, found.static),
        *map(_gone_row, found.gone),
    ]  # fmt: skip
    columns = ("agent", "state", "for", "scaler", "machine", "job", "remark")
    render.print_table(columns, rows, empty="no agents")


@app.command()
def show(agent_id: AgentId, as_json: AsJson = False) -> None:
    """Show one agent, also after its end: when it entered each state, what happened to it.

    Example: kici-scaler agents show scaler-bare-metal-4f1d
    """
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.gateway.models_agents import AgentDetail

    with access.operator() as gateway:
        answer = gateway.get(_path(agent_id))
    if as_json:
        print_json(answer)
        return
    found = parsed(AgentDetail, answer)
    render.print_details(_details(found))
    events = [(each.at, each.type, each.detail) for each in found.events]
    render.print_table(("at", "event", "detail"), events, empty="")


@app.command()
def logs(
    agent_id: AgentId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the agent's end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print what an agent's job printed; after its end, what was kept of it.

    Example: kici-scaler agents logs scaler-bare-metal-4f1d -f
    """
    with access.operator() as gateway:
        for record in gateway.lines(f"{_path(agent_id)}/logs", {"follow": str(follow).lower()}):
            if as_json:
                typer.echo(json.dumps(record))
            else:
                _print_lines(record)


@app.command()
def destroy(
    agent_id: Annotated[str | None, typer.Argument(metavar="ID", help="The agent's id.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every live agent; drain first, or new ones follow.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Forget its row too: you know that its compute is gone."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tear an agent down; a job that it runs fails with that cause.

    Example: kici-scaler agents destroy scaler-bare-metal-4f1d
    """
    if (agent_id is None) is not every:
        raise InvalidInput("name one agent, or say --all")
    if every and force:
        raise InvalidInput("--force is said of one agent at a time")
    with access.operator() as gateway:
        wanted = [agent_id] if agent_id else [each["agentId"] for each in _live(gateway)]
        verb = "forget" if force else "destroy"
        answers = [gateway.post(f"{_path(each)}/{verb}") for each in wanted]
    if as_json:
        print_json(answers if every else answers[0])
        return
    for each, answer in zip(wanted, answers, strict=True):
        typer.echo(f"{each}: {'forgotten' if force else answer['state'] or 'gone'}")


def _live(gateway: OperatorClient) -> Any:
    return gateway.get("/v1/agents", {"limit": 10_000})["agents"]


def _path(agent_id: str) -> str:
    return f"/v1/agents/{quote(agent_id, safe='')}"


def _print_lines(record: Mapping[str, Any]) -> None:
    output = sys.stderr if record["stream"] == "stderr" else sys.stdout
    for line in record["lines"]:
        print(line, file=output, flush=True)


def _live_row(each: AgentView) -> tuple[object, ...]:
    remark = each.condemned_why or ("" if each.connected else _unseen(each))
    return (each.agent_id, each.state, render.ago(each.timings.get(each.state)), each.scaler,
            each.machine_id, each.job_id, remark)  # fmt: skip


def _static_row(each: StaticAgentView) -> tuple[object, ...]:
    remark = "made by no scaler" if each.connected else _unseen(each)
    return (each.agent_id, each.state, render.ago(each.registered_at), None, None, each.job_id,
            remark)  # fmt: skip


def _unseen(each: AgentView | StaticAgentView) -> str:
    since = render.ago(each.unseen_since)
    return f"not connected for {since}" if since else ""


def _gone_row(each: OutcomeView) -> tuple[object, ...]:
    return (each.agent_id, "gone", render.ago(each.gone_at or each.updated_at), each.scaler,
            each.machine_id, each.job_id, each.condemned_why or each.destroy_reason)  # fmt: skip


def _details(found: AgentDetail) -> Iterator[tuple[str, object]]:
    yield "agent", found.agent_id
    if found.agent is not None:
        yield from _live_details(found.agent)
    if found.static is not None:
        yield from _static_details(found.static)
    if found.outcome is not None:
        yield from _outcome_details(found.outcome)


def _live_details(agent: AgentView) -> Iterator[tuple[str, object]]:
    yield "state", agent.state
    yield "scaler", f"{agent.scaler} ({agent.backend_type})"
    yield "machine", agent.machine_id
    yield "job", agent.job_id
    yield "run", agent.run_id
    yield "labels", agent.labels
    yield "mandatory labels", agent.mandatory_labels
    yield "warm", agent.warm or None
    yield "connected", agent.connected
    yield "gateway", agent.gateway
    yield "unseen since", agent.unseen_since
    yield "facts", ", ".join(f"{name} {value}" for name, value in (agent.facts or {}).items())
    yield "reserved by", agent.reserved_by
    yield "revision", agent.revision
    yield "deadline", agent.deadline_at
    yield from _timings(agent.timings)


def _static_details(agent: StaticAgentView) -> Iterator[tuple[str, object]]:
    yield "state", f"{agent.state}; made by no scaler"
    yield "job", agent.job_id
    yield "run", agent.run_id
    yield "labels", agent.labels
    yield "mandatory labels", agent.mandatory_labels
    yield "connected", agent.connected
    yield "gateway", agent.gateway
    yield "unseen since", agent.unseen_since
    yield "facts", ", ".join(f"{name} {value}" for name, value in agent.facts.items())
    yield "registered at", agent.registered_at


def _outcome_details(outcome: OutcomeView) -> Iterator[tuple[str, object]]:
    yield "gone", outcome.gone_at
    yield "torn down for", outcome.destroy_reason
    yield "because", outcome.condemned_why
    yield "exit", (outcome.exit_cause or {}).get("detail")
    yield "of job", outcome.job_id
    if outcome.gone_at is not None:
        yield "scaler", f"{outcome.scaler} ({outcome.backend_type})"
        yield "machine", outcome.machine_id
        yield "reserved by", outcome.reserved_by
        yield "revision", outcome.revision
        yield from _timings(outcome.timings)


def _timings(timings: Mapping[str, datetime]) -> Iterator[tuple[str, object]]:
    for state, moment in sorted(timings.items(), key=lambda each: each[1]):
        yield f"{state} at", moment
