"""`kici-scaler request`: one job, from its request to its exit code."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kici_scaler.cli import access, failures
from kici_scaler.cli.output import AsJson
from kici_scaler.domain.scalers import Role
from kici_scaler.errors import ExitCode, KiciError

EXAMPLES = (
    "Examples:",
    "kici-scaler request --labels linux,demo -- uname -a",
    "kici-scaler request --labels linux --cpus 2 --memory 4Gi --timeout 600 -- make test",
    "kici-scaler request --labels linux --no-wait --payload job.json",
)

Labels = Annotated[str, typer.Option(help="What the agent must offer: linux,gpu.")]
Command = Annotated[list[str] | None, typer.Argument(help="What it runs.", metavar="[--] CMD...")]
Exclude = Annotated[str, typer.Option(help="Labels the agent must not offer.")]
Cpus = Annotated[float | None, typer.Option(help="CPUs the job needs.")]
Memory = Annotated[str | None, typer.Option(help="Memory it needs: 512m, 4Gi.")]
Image = Annotated[str | None, typer.Option(help="The job's own container image.")]
WithRole = Annotated[Role | None, typer.Option("--role", help="Work besides ordinary jobs.")]
Priority = Annotated[int, typer.Option(help="Higher is served first.")]
Org = Annotated[str | None, typer.Option(help="The organisation it is for.")]
Env = Annotated[
    list[str] | None,
    typer.Option(help="NAME=VALUE, or NAME to take it from here; may be repeated."),
]
PayloadFile = Annotated[
    Path | None,
    typer.Option("--payload", help="JSON file instead of CMD; -: standard input."),
]
JobId = Annotated[str | None, typer.Option(help="Its id; one is made up unless given.")]
RunId = Annotated[str, typer.Option(help="The run it belongs to.")]
OrRefuse = Annotated[
    bool, typer.Option("--or-refuse", help="Serve it at once or refuse it; it does not wait.")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Print the job's id and leave.")]
Timeout = Annotated[
    float | None, typer.Option(min=0, help="Seconds until the job is cancelled; exit code 124.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the job's own output.")]


def register(app: typer.Typer) -> None:
    """Add the command; its options end where the job's command begins."""
    settings = {"allow_interspersed_args": False}
    app.command(epilog="\n\n".join(EXAMPLES), context_settings=settings)(request)


def request(
    labels: Labels,
    command: Command = None,
    exclude: Exclude = "",
    cpus: Cpus = None,
    memory: Memory = None,
    image: Image = None,
    role: WithRole = None,
    priority: Priority = 0,
    org: Org = None,
    env: Env = None,
    payload: PayloadFile = None,
    job_id: JobId = None,
    run_id: RunId = "command-line",
    or_refuse: OrRefuse = False,
    no_wait: NoWait = False,
    timeout: Timeout = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a command on a fresh agent: wait, stream its output, end with its exit code.

    A job that a signal ended gives 128 and the signal's number.
    124: the time of --timeout passed.
    125: the job never ran, or nobody knows how it ended.
    130: Ctrl-C, which cancels the job.
    """
    # Imported only now: help must not wait for it.
    from kici_scaler.cli.attending import Manner, attend
    from kici_scaler.cli.payload import read_payload
    from kici_scaler.client import JobRequest

    with _own_failures_apart():
        wanted = JobRequest(
            job_id=job_id or f"job-{secrets.token_hex(6)}",
            run_id=run_id, labels=listed(labels), exclude_labels=listed(exclude),
            payload=read_payload(command or (), payload, env or ()),
            resources=_resources(cpus, memory), org=org, priority=priority, image=image,
            role=None if role is None else role.value, wait=not or_refuse,
        )  # fmt: skip
        manner = Manner(not no_wait, timeout, quiet, as_json)
        with access.dispatcher() as scaler:
            code = attend(scaler, wanted, manner)
    raise typer.Exit(code)


def listed(text: str) -> tuple[str, ...]:
    """The labels of a comma list; what is no label is left to the gateway to refuse."""
    return tuple(label.strip() for label in text.split(",") if label.strip())


def _resources(cpus: float | None, memory: str | None) -> dict[str, object] | None:
    given = {"cpus": cpus, "memory": memory}
    return {name: each for name, each in given.items() if each is not None} or None


@contextmanager
def _own_failures_apart() -> Iterator[None]:
    """A failure that is not the job's own never looks like the job's exit code."""
    try:
        yield
    except KiciError as error:
        if failures.DEBUG.get():
            raise
        failures.show(error)
        raise typer.Exit(ExitCode.NEVER_RAN) from None
