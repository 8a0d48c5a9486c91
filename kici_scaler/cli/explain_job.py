"""`kici-scaler explain JOB`: why it waits, or where it went, as the gateway knows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import typer

from kici_scaler.cli import access, render
from kici_scaler.cli.output import print_json
from kici_scaler.errors import ExitCode

if TYPE_CHECKING:
    from kici_scaler.gateway.models_explain import JobExplanationView


def explain_job(job_id: str, *, as_json: bool) -> None:
    """Print the explanation; ends with 1 for a job that waits and that nothing can serve."""
    from kici_scaler.cli.operator_client import parsed
    from kici_scaler.cli.pages import can_serve_page
    from kici_scaler.gateway.models_explain import JobExplanationView

    with access.operator() as gateway:
        answer = gateway.get(f"/v1/requests/{quote(job_id, safe='')}/explain")
    found = parsed(JobExplanationView, answer)
    if as_json:
        print_json(answer)
    else:
        render.print_details(_details(found))
        if found.routing is not None:
            render.console().print(can_serve_page(found.routing))
        events = [(each.at, each.type, each.agent_id, each.detail) for each in found.events]
        if events:
            render.print_table(("at", "event", "agent", "detail"), events, empty="")
    if found.routing is not None and not found.routing.served:
        raise typer.Exit(ExitCode.INVALID)


def _details(found: JobExplanationView) -> Iterator[tuple[str, object]]:
    request, declared = found.request, found.declared
    result = request.result or {}
    yield "job", request.job_id
    yield "state", request.state
    yield "why it waits" if request.state == "waiting" else "remark", request.reason
    yield "decided before it", None if found.ahead is None else f"{found.ahead} jobs"
    yield "last error", request.last_provisioning_error
    yield "called off because", request.cancel_reason
    yield "exit code", result.get("exitCode")
    yield "error", result.get("error")
    yield "labels", request.labels
    yield "not on", request.exclude_labels
    yield "asks for", declared and f"{declared.cpus:g} CPUs, {declared.mem_bytes} bytes of memory"
    yield "image", request.image
    yield "agent", request.agent_id
    yield "scaler", request.scaler
    yield "machine", request.machine_id
    yield "requeued", request.requeues or None
    yield "requested", request.created_at
    yield "over", request.finished_at
