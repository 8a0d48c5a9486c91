"""The command line of every role, and the environment it needs; no secret is in the arguments."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from config.celery_settings import (
    BACKEND_KINDS,
    CONTROL_KIND,
    WORKER_KIND_VARIABLE,
    queues_for,
)

BEAT: Final = "beat"
GATEWAY: Final = "gateway"
FLOWER: Final = "flower"
WORKERS: Final = (CONTROL_KIND, *BACKEND_KINDS)
ROLES: Final = (*WORKERS, BEAT, GATEWAY, FLOWER)

CELERY_APP: Final = "tasks.app:app"
CONTROL_CONCURRENCY: Final = 2
BACKEND_CONCURRENCY: Final = 16
"""Threads; they wait for sockets and processes, each call with a deadline of its own."""

FLOWER_USER: Final = "kici"
FLOWER_MAX_TASKS: Final = 10_000
"""Flower's own default of 100,000 keeps growing for days."""
FLOWER_PURGE_AFTER: Final = 300
"""Seconds; workers that come and go pile up without."""
FLOWER_COLUMNS: Final = "name,kwargs,state,result,received,runtime,retries,worker"

QUIET_AS_ROOT: Final = {
    "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges"
}
"""Celery warns of pickled messages, which no worker here accepts."""

QUIET_FLOWER: Final = {"FLOWER_LOGGING": "error"}
"""Flower warns about each worker that does not answer yet."""

SOFT_STOP: Final = {"REMAP_SIGTERM": "SIGQUIT"}
"""A container's SIGTERM lets short tasks end and gives the others back, within a bound."""


def worker_program(kind: str, machine_id: str, concurrency: int | None = None) -> tuple[str, ...]:
    """A Celery worker: `control`, or one that drives backends of a kind on a machine.

    Control tasks are bound by the database and run in processes that can be killed at their
    time limit; backend tasks wait for others and run in threads.

    Raises:
        ValueError: no such kind.
    """
    control = kind == CONTROL_KIND
    slots = concurrency or (CONTROL_CONCURRENCY if control else BACKEND_CONCURRENCY)
    return (
        *_celery("worker"),
        "--queues",
        ",".join(queues_for(kind, machine_id)),
        "--hostname",
        f"{kind}-{uuid.uuid4().hex[:8]}@%h",
        "--pool",
        "prefork" if control else "threads",
        "--concurrency",
        str(slots),
        "--without-gossip",
        "--without-mingle",
        "--task-events",
        "--loglevel",
        "INFO",
    )


def worker_environment(kind: str) -> dict[str, str]:
    """What a worker reads besides the settings."""
    return {WORKER_KIND_VARIABLE: kind}


def beat_program(state_dir: Path) -> tuple[str, ...]:
    """Celery beat; any number of them may run."""
    schedule = state_dir / "beat-schedule"
    return (*_celery("beat"), "--schedule", str(schedule), "--pidfile=", "--loglevel", "INFO")


def gateway_program() -> tuple[str, ...]:
    """The HTTP and WebSocket front."""
    return (sys.executable, "-m", "kici_scaler.gateway")


def flower_program(host: str, port: int) -> tuple[str, ...]:
    """Flower, which can look but not touch; its password comes by `flower_environment`."""
    return (
        *_celery("flower"),
        f"--address={host}",
        f"--port={port}",
        "--read_only",
        "--enable_events=False",
        f"--max_tasks={FLOWER_MAX_TASKS}",
        f"--purge_offline_workers={FLOWER_PURGE_AFTER}",
        f"--tasks_columns={FLOWER_COLUMNS}",
    )


def flower_environment(password: str) -> dict[str, str]:
    """What Flower reads besides the settings."""
    return {"FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{password}"}


def _celery(*arguments: str) -> Sequence[str]:
    return (sys.executable, "-m", "celery", "--quiet", "--app", CELERY_APP, *arguments)
