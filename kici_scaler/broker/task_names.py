"""Names of the Celery tasks; part of the contract with dispatchers and with Flower's readers."""

from __future__ import annotations

from typing import Final

REQUEST_SCALE: Final = "request_scale"
REQUEST_SCALE_MANY: Final = "request_scale_many"
CANCEL_REQUEST: Final = "cancel_request"
ADMIT_WAITING: Final = "admit.waiting"
WARM_FILL: Final = "warm.fill"
RELOAD_CONFIG: Final = "reload_config"
PUBLISH_EVENTS: Final = "events.publish"
ACKNOWLEDGE_DELIVERY: Final = "acknowledge_delivery"
ROUTE_EVENT: Final = "route_event"
"""Of the dispatcher's router; sent to its queue, never done here."""
SWEEP_DUE: Final = "sweep.due"
SWEEP_RETENTION: Final = "sweep.retention"


def spawn_task(backend_type: str) -> str:
    """Start what is reserved for this backend type on a machine."""
    return f"spawn.{backend_type}"


def destroy_task(backend_type: str) -> str:
    """Tear down what is ending there."""
    return f"destroy.{backend_type}"


def inspect_task(backend_type: str) -> str:
    """Look whether compute still runs there."""
    return f"inspect.{backend_type}"
