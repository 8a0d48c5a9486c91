"""The Celery configuration of every process, in one place.

Times in seconds. A spawn may take up to 900 s, so the hard limit is 960 s and the
visibility timeout more than twice that. Messages are hints about rows: whatever the
broker loses, doubles or delays, the sweep over due rows makes good.
"""

from __future__ import annotations

from typing import Final

TASK_TIME_LIMIT: Final = 960
VISIBILITY_TIMEOUT: Final = 2_000
SOFT_SHUTDOWN_TIMEOUT: Final = 80
BEAT_INTERVAL: Final = 1.0
KEY_PREFIX: Final = "scaler:"

INTAKE: Final = "intake"
ADMIT: Final = "admit"
WARM: Final = "warm"
HOUSEKEEPING: Final = "housekeeping"
CONTROL_QUEUES: Final = (INTAKE, ADMIT, WARM, HOUSEKEEPING)
EVENT: Final = "event"

CONTROL_KIND: Final = "control"
LOCAL_KINDS: Final = ("bare-metal", "container", "firecracker", "null")
BACKEND_KINDS: Final = (*LOCAL_KINDS, EVENT)
WORKER_KIND_VARIABLE: Final = "KICI_WORKER_KIND"
"""Environment variable that tells a worker process which kind it is."""


def spawn_queue(kind: str, machine_id: str | None) -> str:
    """Queue of the workers that can start compute of this kind on this machine."""
    return EVENT if machine_id is None else f"machine.{machine_id}.{kind}"


def destroy_queue(kind: str, machine_id: str | None) -> str:
    """Queue of the workers that can destroy there; apart, so that starts never delay it."""
    return f"{spawn_queue(kind, machine_id)}.destroy"


def queues_for(kind: str, machine_id: str) -> tuple[str, ...]:
    """Queues that a worker of `kind` (control, or a backend type) on a machine consumes.

    Raises:
        ValueError: no such kind.
    """
    if kind == CONTROL_KIND:
        return CONTROL_QUEUES
    if kind not in BACKEND_KINDS:
        known = ", ".join((CONTROL_KIND, *BACKEND_KINDS))
        raise ValueError(f"unknown worker kind {kind!r}; one of {known}")
    machine = None if kind == EVENT else machine_id
    return spawn_queue(kind, machine), destroy_queue(kind, machine)


def transport_options(client_name: str) -> dict[str, object]:
    """Options of the Redis transport; a frozen or restarted server is noticed in seconds."""
    return {
        "visibility_timeout": VISIBILITY_TIMEOUT,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": 30,
        "socket_timeout": 5,
        "socket_connect_timeout": 3,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "global_keyprefix": KEY_PREFIX,
        "client_name": client_name,
    }


def celery_configuration(redis_url: str, client_name: str) -> dict[str, object]:
    """The configuration for `Celery.conf.update`, for workers and senders alike."""
    return {
        "broker_url": redis_url,
        "broker_transport_options": transport_options(client_name),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_channel_error_retry": True,
        "broker_pool_limit": 10,
        "broker_pool_acquire_timeout": 10,
        "result_backend": redis_url,
        "result_backend_transport_options": {
            "global_keyprefix": KEY_PREFIX,
            "retry_policy": {"timeout": 5.0},
        },
        "redis_socket_timeout": 5,
        "redis_socket_connect_timeout": 3,
        "redis_backend_health_check_interval": 10,
        "result_expires": 300,
        "task_ignore_result": True,
        "task_default_queue": HOUSEKEEPING,
        "task_create_missing_queues": True,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_retry_on_worker_lost": True,
        "task_acks_on_failure": True,
        "task_acks_on_timeout": True,
        "task_soft_time_limit": None,
        "task_time_limit": TASK_TIME_LIMIT,
        "task_publish_retry_policy": {"max_retries": 3, "interval_start": 0, "interval_max": 1},
        "task_serializer": "json",
        "result_serializer": "json",
        "accept_content": ["json"],
        "task_send_sent_event": True,
        "worker_send_task_events": True,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_soft_shutdown_timeout": SOFT_SHUTDOWN_TIMEOUT,
        "worker_enable_soft_shutdown_on_idle": False,
        "worker_max_tasks_per_child": 5_000,
        "worker_max_memory_per_child": 300_000,
        "worker_eta_task_limit": 100,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "enable_utc": True,
        "timezone": "UTC",
        "beat_max_loop_interval": BEAT_INTERVAL,
    }
