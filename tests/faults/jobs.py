"""Jobs that leave a witness of each run, and a dispatcher that asks for them."""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kombu.exceptions import OperationalError

from config.celery_settings import INTAKE
from kici_scaler.broker.hints import sender
from kici_scaler.broker.task_names import REQUEST_SCALE
from kici_scaler.client import DispatcherClient, JobRequest, Payload, wire
from tests.faults.leaks import PLANTED
from tests.faults.stage import Stage


@dataclass(frozen=True, slots=True)
class Job:
    """A real command: notes that it began, works a while, notes that it ended."""

    id: str
    seconds: float
    exit_code: int = 0


def jobs(count: int, seed: int, *, longest: float = 2.0, prefix: str = "job") -> list[Job]:
    """`count` jobs of mixed length, some of which fail on purpose."""
    chance = random.Random(seed)
    return [
        Job(
            f"{prefix}-{seed}-{number}",
            round(chance.uniform(0.05, longest), 2),
            3 if chance.random() < 0.1 else 0,
        )
        for number in range(count)
    ]


def command(job: Job, witness: Path) -> tuple[str, ...]:
    """The command line; each line it appends is written whole."""
    note = shlex.quote(str(witness / job.id))
    return (
        "sh",
        "-c",
        f"echo began $$ >> {note}; sleep {job.seconds}; echo ended $$ >> {note};"
        f" exit {job.exit_code}",
    )


def request_of(job: Job, witness: Path) -> JobRequest:
    """What the dispatcher asks for."""
    return JobRequest(
        job_id=job.id,
        run_id="faults",
        labels=("linux", "faults"),
        payload=Payload(command=command(job, witness), env={"PLANTED": PLANTED}),
        max_requeues=20,
    )


def dispatcher(stage: Stage, *, patience: float = 120.0) -> DispatcherClient:
    """A client that goes on asking through every outage."""
    key = stage.roles.profile.dispatcher_key_path.read_text().strip()
    return DispatcherClient(f"http://127.0.0.1:{stage.front.port}", key, answer_within=patience)


def ask_for_all(client: DispatcherClient, stage: Stage, wanted: Iterable[Job]) -> None:
    """Every job twice, by a task that nobody waits for and over HTTP until it is answered."""
    app = sender(stage.servers.profile.redis_url.get_secret_value(), "fault-dispatcher")
    with app:
        for job in wanted:
            request = request_of(job, stage.witness)
            body = wire.request_body(request, client.sealing_key())
            with suppress(OperationalError):  # with the broker down, the one over HTTP counts
                app.send_task(REQUEST_SCALE, kwargs={"request": body}, queue=INTAKE)
            client.request(request)
