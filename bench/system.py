"""The whole system on one machine: servers, control worker, backend worker, gateway, beat."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from celery import Celery
from celery.result import AsyncResult
from sqlalchemy import text

from bench.empty_tasks import ROOT, EmptyTasks, application, empty_tasks
from bench.fleet.backend import NAME, NOTES_VARIABLE, SOCKET_VARIABLE, plugin
from bench.notes import Notes
from bench.place import KIND, Place, servers
from bench.waiting import wait_until
from config.celery_settings import INTAKE
from kici_scaler.broker import task_names
from kici_scaler.client import JobRequest, Payload, wire
from kici_scaler.embedded.child import Child
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.process import Command, Process, StopStep
from kici_scaler.embedded.roles import RoleContext, role_children, worker_child
from kici_scaler.sealing import ensure_keys
from kici_scaler.store.engine import transaction

SLOTS = 32
_TABLES = "spawns, agents, agent_tokens, outcomes, events, scale_requests"

Body = dict[str, object]


@dataclass(frozen=True)
class System:
    """What a figure needs of it."""

    place: Place
    tasks: EmptyTasks
    dispatcher: Celery = field(repr=False)
    seal_keys: Path
    notes: Notes
    """The backend's own; what stands there was really handed over."""

    def bodies(self, name: str, count: int) -> list[Body]:
        """That many requests with new job ids, sealed, as a dispatcher sends them."""
        key = ensure_keys(self.seal_keys).newest.public
        return [
            wire.request_body(
                JobRequest(
                    job_id=f"{name}-{number}",
                    run_id="bench",
                    labels=("linux", "pool-0"),
                    payload=Payload(command=("true",)),
                ),
                key,
            )
            for number in range(count)
        ]

    def send_single(self, body: Body, *, wants_answer: bool = False) -> AsyncResult[object]:
        """One request as a task of its own."""
        return self.dispatcher.send_task(
            task_names.REQUEST_SCALE,
            kwargs={"request": body},
            queue=INTAKE,
            ignore_result=not wants_answer,
        )

    def send_many(self, bodies: Sequence[Body]) -> AsyncResult[object]:
        """All of them in one task."""
        return self.dispatcher.send_task(
            task_names.REQUEST_SCALE_MANY, kwargs={"requests": bodies}, queue=INTAKE
        )

    def handed_over(self) -> int:
        """How many agents the backend was ever told to start."""
        return self.notes.count()

    def started_at(self) -> dict[str, float]:
        """When the backend was told to start the agent of each job, in epoch seconds."""
        return self.notes.started_at()

    def alive(self) -> int:
        """How many spawns have not come to their confirmed end."""
        return self.place.count("SELECT count(*) FROM spawns")

    def clear(self) -> None:
        """Forget every request and agent, in the rows and in the notes."""
        with transaction(self.place.engine) as connection:
            connection.execute(text(f"TRUNCATE {_TABLES}"))
        self.notes.clear()


@contextmanager
def system(*, fleet: bool, backend_workers: int = 1) -> Iterator[System]:
    """Everything, on a backend that makes nothing; with `fleet`, agents are played."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kici-bench-")))
        place = stack.enter_context(servers(1, slots=SLOTS, machine=False))
        tasks = stack.enter_context(empty_tasks(place.redis_url))
        notes = Notes(folder / "notes")
        notes.clear()
        if fleet:
            stack.enter_context(_fleet(folder / "fleet.sock"))
        plan = _plan(place, folder, fleet)
        roles = stack.enter_context(
            Installation(
                plan,
                folder / "roles",
                roles_of=lambda context: _with_more_workers(context, backend_workers - 1),
            )
        )
        yield System(
            place,
            tasks,
            application(place.redis_url),
            roles.profile.seal_keys_path,
            notes,
        )


def _plan(place: Place, folder: Path, fleet: bool) -> Plan:
    path = os.pathsep.join([str(ROOT), str(plugin(folder / "plugin"))])
    played = {SOCKET_VARIABLE: str(folder / "fleet.sock")} if fleet else {}
    return Plan(
        roles=("control", KIND, "gateway", "beat"),
        database_url=place.servers.profile.database_url.get_secret_value(),
        redis_url=place.redis_url,
        environment={
            "PYTHONPATH": path,
            "KICI_WORKER_STAND_IN": NAME,
            NOTES_VARIABLE: str(folder / "notes"),
            "KICI_LOG_LEVEL": "WARNING",
            **played,
        },
    )


def _with_more_workers(context: RoleContext, more: int) -> list[Child]:
    others = (worker_child(context, KIND, f"{KIND}-{number}") for number in range(more))
    return [*role_children(context), *others]


@contextmanager
def _fleet(path: Path) -> Iterator[None]:
    command = Command(
        (sys.executable, "-m", "bench.fleet", str(path)),
        {**os.environ, "PYTHONPATH": str(ROOT)},
        ROOT,
    )
    process = Process(command, lambda line: print("fleet:", line, file=sys.stderr))
    stop: tuple[StopStep, ...] = ()
    try:
        wait_until(path.exists, "the fleet listens")
        yield
    finally:
        process.stop(stop)
