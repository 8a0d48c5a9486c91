"""`kici-scaler requests`: what jobs ask for agents, what they wait for, how they ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from kici_scaler.cli import access, render
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.domain.request import RequestState

if TYPE_CHECKING:
    from kici_scaler.gateway.models import RequestView

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
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.gateway.models import RequestList

    states = list(RequestState) if everything else state or []
    query: dict[str, int | list[str]] = {"state": [each.value for each in states], "limit": limit}
    with access.operator() as gateway:
        answer = gateway.get("/v1/requests", query)
    if as_json:
        print_json(answer)
        return
    found = parsed(RequestList, answer).requests
    columns = ("job", "state", "since", "labels", "agent", "why")
    render.print_table(columns, map(_row, found), empty="no requests")


@app.command()
def show(job_id: JobId, as_json: AsJson = False) -> None:
    """Show one request: what it asks for, where it is, and how its job ended.

    Example: kici-scaler requests show job-4f1d
    """
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.gateway.models import RequestView

    with access.operator() as gateway:
        answer = gateway.get(f"/v1/requests/{quote(job_id, safe='')}")
    if as_json:
        print_json(answer)
    else:
        render.print_details(_details(parsed(RequestView, answer)))


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

    Example: kici-scaler requests cancel job-4f1d --reason superseded
    """
    with access.dispatcher() as scaler:
        state = scaler.cancel(job_id, reason=reason)
    if as_json:
        print_json({"jobId": job_id, "state": state})
    else:
        typer.echo(f"{job_id}: {state}")


def _row(found: RequestView) -> tuple[object, ...]:
    since = render.ago(found.finished_at or found.created_at)
    why = _end(found) or found.reason
    return found.job_id, found.state, since, found.labels, found.agent_id, why


def _details(found: RequestView) -> list[tuple[str, object]]:
    return [
        ("job", found.job_id),
        ("run", found.run_id),
        ("organisation", found.org),
        ("state", found.state),
        ("reason", found.reason),
        ("end", _end(found)),
        ("labels", found.labels),
        ("excluded", found.exclude_labels),
        ("image", found.image),
        ("priority", found.priority or None),
        ("agent", found.agent_id),
        ("agent's state", found.agent_state),
        ("scaler", found.scaler),
        ("machine", found.machine_id),
        ("reserved by", found.reserved_by),
        ("revision", found.revision),
        ("requeued", found.requeues or None),
        ("last error", found.last_provisioning_error),
        ("requested", found.created_at),
        ("decided", found.decided_at),
        ("over", found.finished_at),
    ]


def _end(found: RequestView) -> str | None:
    result = found.result or {}
    parts = [
        f"exit code {result['exitCode']}" if result.get("exitCode") is not None else "",
        f"signal {result['signal']}" if result.get("signal") is not None else "",
        str(result.get("error") or ""),
    ]
    return ", ".join(filter(None, parts)) or None
