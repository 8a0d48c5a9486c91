"""The Celery application; workers, beat and Flower load it as `tasks.app:app`."""

from __future__ import annotations

import sys

import structlog
from celery import Celery, signals

from config.celery_settings import (
    ADMIT,
    BEAT_INTERVAL,
    CONTROL_KIND,
    HOUSEKEEPING,
    INTAKE,
    WARM,
    celery_configuration,
)
from config.logs import configure_logging
from config.redis_transport import keep_clients
from config.settings import settings
from kici_scaler import loaded
from kici_scaler.broker import task_names
from kici_scaler.errors import KiciError
from tasks import log_context, process

log = structlog.get_logger(__name__)

RETENTION_INTERVAL = 60.0
FILL_INTERVAL = 30.0
"""Seconds between looks at the warm pools; whatever takes an agent has them looked at sooner."""

ROUTES = {
    task_names.REQUEST_SCALE: INTAKE,
    task_names.REQUEST_SCALE_MANY: INTAKE,
    task_names.CANCEL_REQUEST: INTAKE,
    task_names.ACKNOWLEDGE_DELIVERY: INTAKE,
    task_names.RELOAD_CONFIG: INTAKE,
    task_names.ADMIT_WAITING: ADMIT,
    task_names.WARM_FILL: WARM,
    task_names.SWEEP_DUE: HOUSEKEEPING,
    task_names.PUBLISH_EVENTS: HOUSEKEEPING,
    task_names.SWEEP_RETENTION: HOUSEKEEPING,
}
"""The queue of each control task; steps at backends have one for each machine instead."""

BEAT = "beat"
"""Celery's own word for the clock, among the arguments that it was started with."""

DUTIES = {
    task_names.WARM_FILL: FILL_INTERVAL,
    task_names.SWEEP_DUE: BEAT_INTERVAL,
    task_names.PUBLISH_EVENTS: BEAT_INTERVAL,
    task_names.SWEEP_RETENTION: RETENTION_INTERVAL,
}
"""What the clock fires, and each how many seconds; any number of clocks may."""

keep_clients()
# Its tasks say `shared=False`: others would join any other application of the process.
app = Celery("kici-scaler", set_as_current=False)
app.conf.update(
    celery_configuration(settings().redis_url.get_secret_value(), "kici-worker"),
    imports=(
        "tasks.request",
        "tasks.admit",
        "tasks.warm",
        "tasks.sweep",
        "tasks.backend",
        "tasks.config",
        "tasks.deliver",
    ),
    task_routes={name: {"queue": queue} for name, queue in ROUTES.items()},
    beat_schedule={
        name: {
            "task": name,
            "schedule": seconds,
            "options": {"queue": ROUTES[name], "ignore_result": True},
        }
        for name, seconds in DUTIES.items()
    },
)


@signals.setup_logging.connect
def _set_up_logging(**_: object) -> None:
    configure_logging(settings(), BEAT if _is_a_beat() else process.worker_kind())


@signals.task_prerun.connect
def _name_the_task(
    task_id: str = "", task: object = None, kwargs: object = None, **_: object
) -> None:
    """Every line that a task logs says which it was, and of whom; nothing stays from the last."""
    log_context.begin(str(getattr(task, "name", "")), task_id, kwargs)


@signals.task_postrun.connect
def _forget_the_task(**_: object) -> None:
    log_context.end()


@signals.worker_ready.connect
def _open_worker(sender: object = None, **_: object) -> None:
    """Celery only logs what a signal handler raises, so what cannot be mended ends here."""
    try:
        if process.worker_kind() != CONTROL_KIND:
            process.open_host(getattr(sender, "hostname", None))
            process.bookkeeper()
    except KiciError as error:
        log.critical("worker cannot serve", error=str(error), hint=error.hint)
        raise SystemExit(error.exit_code) from error
    loaded.set_apart()
    _say_ready()


@signals.worker_process_init.connect
def _open_process(**_: object) -> None:
    process.bookkeeper()
    loaded.set_apart()


@signals.worker_process_shutdown.connect
def _close_process(**_: object) -> None:
    process.close()


@signals.beat_init.connect
def _beat_is_ready(**_: object) -> None:
    process.runtime().hints.fill()
    settings().state_dir.mkdir(parents=True, exist_ok=True)
    _say_ready()


@signals.after_task_publish.connect
def _the_broker_took_one(**_: object) -> None:
    """`kici-scaler health beat` looks at this: a clock whose ticks go nowhere is not well."""
    if _is_a_beat():
        settings().beat_sign_path.touch()


@signals.worker_shutting_down.connect
def _close_worker(**_: object) -> None:
    if process.worker_kind() != CONTROL_KIND and process.host.cache_info().currsize:
        process.host().close()
        process.close()


def _is_a_beat() -> bool:
    return BEAT in sys.argv


def _say_ready() -> None:
    ready_file = settings().ready_file
    if ready_file is not None:
        ready_file.touch()
