"""The live Celery configuration, held to what was found to keep workers and messages alive."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from celery import Celery, Task

from config import celery_settings
from config.celery_settings import celery_configuration, destroy_queue, queues_for, spawn_queue

URL = "redis://127.0.0.1:1/0"

SETTINGS: dict[str, object] = {
    # A worker that is killed gives its task to another, a bounded number of times.
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_retry_on_worker_lost": True,
    # The sweep over rows decides about failures and time-outs, not the broker.
    "task_acks_on_failure": True,
    "task_acks_on_timeout": True,
    "worker_prefetch_multiplier": 1,
    # An exception raised anywhere might strike in the middle of a COMMIT.
    "task_soft_time_limit": None,
    # A broker that restarts must not kill what runs.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # Shorter than the grace of containers, which is 90 s here.
    "worker_soft_shutdown_timeout": 80,
    "worker_enable_soft_shutdown_on_idle": False,
    "worker_max_memory_per_child": 300_000,
    "worker_eta_task_limit": 100,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    # Without it one READONLY answer (a failover) makes a worker exit.
    "broker_channel_error_retry": True,
    "broker_pool_acquire_timeout": 10,
    "task_serializer": "json",
    "result_serializer": "json",
    "accept_content": ["json"],
    "enable_utc": True,
    "timezone": "UTC",
    "worker_send_task_events": True,
    "task_send_sent_event": True,
    # Only a caller of intake reads an answer, and soon.
    "task_ignore_result": True,
    "result_expires": 300,
}

TRANSPORT: dict[str, object] = {
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "unacked_mutex_expire": 30,
    "socket_timeout": 5,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "global_keyprefix": "scaler:",
}

LONGEST_SPAWN = 900
CONTAINER_STOP_GRACE = 90


@pytest.fixture(scope="module")
def live() -> Celery:
    """The application that workers, beat and Flower load, with all its tasks."""
    from tasks.app import app

    app.loader.import_default_modules()
    return app


@pytest.fixture(scope="module", params=["tasks.app", "a sender"])
def configured(request: pytest.FixtureRequest, live: Celery) -> Celery:
    """Each application that talks to the broker."""
    if request.param == "tasks.app":
        return live
    sender = Celery("sender", set_as_current=False)
    sender.conf.update(celery_configuration(URL, "kici-sender"))
    return sender


def _own(app: Celery) -> dict[str, Task[Any, Any]]:
    return {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_setting_has_the_value_that_keeps_work_safe(configured: Celery, name: str) -> None:
    assert configured.conf[name] == SETTINGS[name]


@pytest.mark.parametrize("name", TRANSPORT)
def test_the_transport_notices_a_broken_server_in_seconds(configured: Celery, name: str) -> None:
    assert configured.conf.broker_transport_options[name] == TRANSPORT[name]


def test_a_reply_is_awaited_longer_than_the_server_may_hold_a_blocking_pop(
    configured: Celery,
) -> None:
    assert configured.conf.broker_transport_options["socket_timeout"] > 1


def test_reads_that_were_sent_are_not_repeated_by_the_client(configured: Celery) -> None:
    """Repeating an ambiguous write would publish twice without anybody knowing."""
    assert "retry_on_timeout" not in configured.conf.broker_transport_options


def test_a_publisher_gives_up_within_seconds_and_leaves_the_rest_to_the_sweep(
    configured: Celery,
) -> None:
    policy = configured.conf.task_publish_retry_policy
    assert policy["max_retries"] <= 3
    assert policy["interval_max"] <= 1


def test_results_live_under_the_prefix_of_the_installation(configured: Celery) -> None:
    assert configured.conf.result_backend_transport_options["global_keyprefix"] == "scaler:"


def test_every_client_names_itself_to_the_server(configured: Celery) -> None:
    assert configured.conf.broker_transport_options["client_name"].startswith("kici-")


def test_children_are_replaced_before_a_leak_matters(live: Celery) -> None:
    assert 100 <= live.conf.worker_max_tasks_per_child <= 10_000


def test_the_pool_has_a_connection_for_each_thread_that_publishes(live: Celery) -> None:
    assert live.conf.broker_pool_limit >= 10


def test_the_hard_limit_leaves_the_longest_spawn_its_time(live: Celery) -> None:
    assert live.conf.task_time_limit > LONGEST_SPAWN


def test_no_message_is_redelivered_while_its_task_may_still_run(live: Celery) -> None:
    limits = [live.conf.task_time_limit]
    limits += [task.time_limit for task in _own(live).values() if task.time_limit]
    timeout = live.conf.broker_transport_options["visibility_timeout"]
    assert timeout > 2 * max(limits)


def test_no_countdown_comes_near_the_visibility_timeout(live: Celery) -> None:
    timeout = live.conf.broker_transport_options["visibility_timeout"]
    backoffs = [getattr(task, "retry_backoff_max", 0) or 0 for task in _own(live).values()]
    delays = [task.default_retry_delay or 0 for task in _own(live).values()]
    assert max([*backoffs, *delays]) < timeout / 2


def test_a_soft_shutdown_ends_before_a_container_is_killed(live: Celery) -> None:
    assert live.conf.worker_soft_shutdown_timeout < CONTAINER_STOP_GRACE


def test_every_task_has_a_name_of_its_own_that_no_module_path_shows_through(live: Celery) -> None:
    names = set(_own(live))
    assert {"request_scale", "request_scale_many", "cancel_request", "admit.waiting"} <= names
    assert {"sweep.due", "spawn.bare-metal", "destroy.bare-metal"} <= names
    assert not [name for name in names if name.startswith(("tasks.", "kici_scaler."))]


def test_no_task_joins_another_application_of_the_process(live: Celery) -> None:
    other = Celery("other", set_as_current=False)
    assert not set(_own(live)) & set(other.tasks)


def test_every_task_takes_its_arguments_by_keyword(live: Celery) -> None:
    wrong = [
        name
        for name, task in _own(live).items()
        for parameter in inspect.signature(task.run).parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    assert not wrong


def test_only_intake_tasks_carry_more_than_ids(live: Celery) -> None:
    allowed = {
        "machine",
        "trigger",
        "agents",
        "agent_id",
        "job_id",
        "reason",
        "plan",
        "delivery_id",
    }
    for name, task in _own(live).items():
        if name not in ("request_scale", "request_scale_many"):
            assert set(inspect.signature(task.run).parameters) <= allowed, name


def test_every_task_is_retried_a_bounded_number_of_times(live: Celery) -> None:
    unbounded = {
        name: task.max_retries
        for name, task in _own(live).items()
        if task.max_retries is None or not 0 <= task.max_retries <= 5
    }
    assert not unbounded


def test_only_intake_answers_its_caller(live: Celery) -> None:
    answering = {name for name, task in _own(live).items() if not task.ignore_result}
    assert answering == {
        "request_scale",
        "request_scale_many",
        "cancel_request",
        "reload_config",
        "acknowledge_delivery",
    }


def test_no_message_expires_by_somebody_elses_clock(live: Celery) -> None:
    """A worker's clock may be ahead: an expiry would discard what the sweep relies on least."""
    assert not [name for name, task in _own(live).items() if task.expires]
    assert not [
        name
        for name, entry in live.conf.beat_schedule.items()
        if "expires" in entry.get("options", {})
    ]


def test_duties_of_the_clock_are_known_tasks_that_cannot_delay_demand(live: Celery) -> None:
    for entry in live.conf.beat_schedule.values():
        assert entry["task"] in _own(live)
        queues = (celery_settings.HOUSEKEEPING, celery_settings.WARM)
        assert entry["options"]["queue"] in queues
        assert entry["schedule"] >= celery_settings.BEAT_INTERVAL


@pytest.mark.parametrize("kind", celery_settings.LOCAL_KINDS)
def test_compute_of_a_machine_has_queues_of_that_machine(kind: str) -> None:
    queues = queues_for(kind, "host-1")
    assert queues == (f"machine.host-1.{kind}", f"machine.host-1.{kind}.destroy")
    assert queues == (spawn_queue(kind, "host-1"), destroy_queue(kind, "host-1"))


def test_event_compute_has_one_pair_of_queues_for_all_workers() -> None:
    assert queues_for("event", "host-1") == queues_for("event", "host-2")
    assert queues_for("event", "host-1") == ("event", "event.destroy")


def test_a_refill_cannot_delay_demand_and_starts_cannot_delay_destroys() -> None:
    control = queues_for("control", "host-1")
    assert len(set(control)) == len(control) == 4
    assert control[:2] == ("intake", "admit")


def test_an_unknown_kind_of_worker_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="one of control, bare-metal"):
        queues_for("docker", "host-1")
