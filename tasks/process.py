"""What one Celery process has: settings, the runtime, and (a backend worker) its host.

Built at the first use after any fork, so that no connection is shared between processes.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from functools import lru_cache
from typing import TYPE_CHECKING

import structlog
from celery import Celery

from config.celery_settings import CONTROL_KIND, WORKER_KIND_VARIABLE
from config.settings import settings
from kici_scaler.broker.backlog import IntakeBacklog
from kici_scaler.broker.event_stream import EventStream
from kici_scaler.broker.hints import CeleryHints, sender, short_lived_client
from kici_scaler.broker.mutex import RedisMutex
from kici_scaler.domain.scalers import BackendType
from kici_scaler.service.bookkeeper import Bookkeeper
from kici_scaler.service.runtime import NoMutex, Runtime
from kici_scaler.store.engine import DatabaseUnreachable, make_engine
from tasks.own_queues import OwnQueues

# Loaded where they are used: a control worker, beat and Flower never touch a machine.
if TYPE_CHECKING:
    from workers.event.host import EventHost
    from workers.fleet.ports import FleetPorts
    from workers.host.host import BackendHost

STAND_IN_VARIABLE = "KICI_WORKER_STAND_IN"
SERVES_VARIABLE = "KICI_WORKER_SCALERS"
RETRY_SECONDS = 3.0

log = structlog.get_logger(__name__)


def owner_name(role: str) -> str:
    """This process for one run of it: role, host, process id and a random part."""
    return f"{role}@{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


@lru_cache(maxsize=1)
def sending_app() -> Celery:
    """What this process sends tasks with; it consumes with the application it was started on."""
    return sender(settings().redis_url.get_secret_value(), worker_kind())


def build_runtime(role: str, pool_size: int) -> Runtime:
    """A runtime on this process's settings; connections are made when first used."""
    its = settings()
    broker_url = its.redis_url.get_secret_value()
    marks = short_lived_client(its.mutex_url)
    broker = marks if its.mutex_url == broker_url else short_lived_client(broker_url)
    return Runtime(
        engine=make_engine(
            its.database_url.get_secret_value(), application=role, pool_size=pool_size
        ),
        owner=owner_name(role),
        hints=CeleryHints(sending_app(), marks),
        mutex=RedisMutex(marks, IntakeBacklog(broker)) if its.reservation_mutex else NoMutex(),
    )


@lru_cache(maxsize=1)
def runtime() -> Runtime:
    """The runtime of this process."""
    kind = worker_kind()
    return build_runtime(kind, pool_size=2 if kind == CONTROL_KIND else 20)


@lru_cache(maxsize=1)
def bookkeeper() -> Bookkeeper:
    """Stores what this process counts; runs from the first call on."""
    return Bookkeeper(runtime().engine).__enter__()


def close() -> None:
    """The last thing this process does."""
    if bookkeeper.cache_info().currsize:
        bookkeeper().__exit__()


def waiting_looks(task: str, queue: str) -> list[str]:
    """Agents to look at besides those that the task itself names."""
    hints = runtime().hints
    return hints.waiting_looks(task, queue) if isinstance(hints, CeleryHints) else []


def clear_mark(task: str, queue: str) -> None:
    """Say that the hint waiting in a queue is being answered, before rows are read."""
    hints = runtime().hints
    if isinstance(hints, CeleryHints):
        hints.clear(task, queue)


@lru_cache(maxsize=1)
def event_stream() -> EventStream:
    """Where this process hands lifecycle events."""
    its = settings()
    client = short_lived_client(its.redis_url.get_secret_value())
    return EventStream(client, sending_app(), its.events_task, its.events_queue)


def worker_kind() -> str:
    """`control`, or the backend type this worker was started for."""
    return os.environ.get(WORKER_KIND_VARIABLE, CONTROL_KIND)


@lru_cache(maxsize=1)
def host() -> BackendHost | EventHost:
    """The backend host of this process; only in a backend worker."""
    backend_type = BackendType(worker_kind())
    stand_in = os.environ.get(STAND_IN_VARIABLE)
    if backend_type is BackendType.EVENT and stand_in is None:
        return _event_host()
    from workers.host.host import BackendHost, HostOptions

    serves = os.environ.get(SERVES_VARIABLE)
    has_fleet = backend_type is BackendType.BARE_METAL and stand_in is None
    return BackendHost(
        runtime(),
        settings(),
        HostOptions(
            backend_type,
            stand_ins={} if stand_in is None else {backend_type.value: stand_in},
            serves=None if not serves else tuple(part.strip() for part in serves.split(",")),
            fleet=_fleet() if has_fleet else None,
        ),
    )


def _fleet() -> FleetPorts | None:
    """How machines are reached; none where this is no Celery worker that could be told of them."""
    name = _name_of_worker()
    if name is None:
        return None
    from workers.bare_metal import open_remote
    from workers.fleet.ports import FleetPorts

    return FleetPorts(open_remote, OwnQueues(sending_app(), name))


def _event_host() -> EventHost:
    from workers.event.host import EventHost
    from workers.event.router import celery_publisher

    its = settings()
    return EventHost(runtime(), its, celery_publisher(sending_app(), its.router_queue))


_names: list[str] = []


def _name_of_worker() -> str | None:
    return _names[0] if _names else None


def open_host(worker: str | None = None) -> None:
    """Open this worker's host; while the database is away, go on trying.

    Args:
        worker: this worker's name among all Celery workers.

    Raises:
        KiciError: the backend cannot be used on this machine.
    """
    if worker is not None:
        _names[:] = [worker]
    while True:
        try:
            host().open()
        except DatabaseUnreachable as error:
            log.warning("waiting for the database", error=str(error))
            time.sleep(RETRY_SECONDS)
        else:
            return
