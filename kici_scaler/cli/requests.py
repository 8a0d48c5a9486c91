"""`kici-scaler requests`: what jobs ask for agents, what they wait for, how they ended."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from kici_scaler.cli import access, render
from kici_scaler.cli.config import AsJson, print_json
from kici_scaler.domain.request import RequestState

app = typer.Typer(help="List, show and cancel scale requests.", no_args_is_help=True)

JobId = Annotated[str, typer.Argument(help="The id of the job.", metavar="JOB")]


@app.command("list")
def list_requests(
    state: Annotated[
        list[RequestState] | None, typer.Option(help="Only in this state; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 200,
    as_json: AsJson = False,
) -> None:
    """List the requests that are not over, the oldest first, with the reason each waits for.

    Example: kici-scaler requests list --state waiting
    """
    states = list(RequestState) if everything else state or []
    query: dict[str, int | list[str]] = {"state": [each.value for each in states], "limit": limit}
    with access.operator() as gateway:
        found = gateway.get("/v1/requests", query)
    if as_json:
        print_json(found)
        return
    rows = [_row(each) for each in found["requests"]]
    render.console().print(
        render.table_of(("job", "state", "since", "labels", "agent", "why"), rows)
        if rows
        else "no requests"
    )


@app.command()
def show(job_id: JobId, as_json: AsJson = False) -> None:
    """Show one request: what it asks for, where it is, and how its job ended.

    Example: kici-scaler requests show job-4f1d
    """
    with access.operator() as gateway:
        found = gateway.get(_path(job_id))
    if as_json:
        print_json(found)
    else:
        render.console().print(render.details_of(_details(found)))


@app.command()
def log(job_id: JobId) -> None:
    """Print a job's output, as it comes, until the job is over.

    Example: kici-scaler requests log job-4f1d
    """
    from kici_scaler.cli.following import print_line

    with access.dispatcher() as scaler:
        for line in scaler.log(job_id):
            print_line(line, sys.stdout)


@app.command()
def cancel(
    job_id: JobId,
    reason: Annotated[str, typer.Option(help="Why; stands on the request.")] = "",
    as_json: AsJson = False,
) -> None:
    """Cancel a job, whatever its state; a running one is told to stop.

    Example: kici-scaler requests cancel job-4f1d --reason "superseded"
    """
    with access.dispatcher() as scaler:
        state = scaler.cancel(job_id, reason=reason)
    if as_json:
        print_json({"jobId": job_id, "state": state})
    else:
        typer.echo(f"{job_id}: {state}")


def _path(job_id: str) -> str:
    return f"/v1/requests/{quote(job_id, safe='')}"


def _row(found: Mapping[str, Any]) -> tuple[object, ...]:
    since = found["finishedAt"] or found["enqueuedAt"]
    why = found["reason"] or _end(found)
    return (found["jobId"], found["state"], render.ago(since), found["labels"],
            found["agentId"], why)  # fmt: skip


def _details(found: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [
        ("job", found["jobId"]),
        ("run", found["runId"]),
        ("organisation", found["org"]),
        ("state", found["state"]),
        ("answer", found["result"]),
        ("reason", found["reason"]),
        ("end", _end(found)),
        ("labels", found["labels"]),
        ("excluded", found["excludeLabels"]),
        ("image", found["image"]),
        ("priority", found["priority"] or None),
        ("agent", found["agentId"]),
        ("agent's state", found["agentState"]),
        ("scaler", found["scaler"]),
        ("machine", found["machineId"]),
        ("requeued", found["requeues"] or None),
        ("last error", found["lastProvisioningError"]),
        ("requested", render.local(found["enqueuedAt"])),
        ("decided", render.local(found["decidedAt"])),
        ("over", render.local(found["finishedAt"])),
    ]


def _end(found: Mapping[str, Any]) -> str | None:
    outcome = found["outcome"] or {}
    parts = [
        f"exit code {outcome['exitCode']}" if outcome.get("exitCode") is not None else "",
        f"signal {outcome['signal']}" if outcome.get("signal") is not None else "",
        str(outcome.get("error") or ""),
    ]
    return ", ".join(filter(None, parts)) or None
