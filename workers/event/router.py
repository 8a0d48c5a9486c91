"""Events to `organisation/workflow`: handed to the dispatcher's event router as a task.

The task tells of an event and carries no secret. The router fetches the event itself from a
gateway, which is when it may begin to act, and acknowledges its id; until then the task is
sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from kici_scaler.broker import task_names
from kici_scaler.domain.delivery import Acted, Attempt

Publish = Callable[[Mapping[str, object]], None]
"""Sends the task with these keyword arguments; raises `NotPublished`."""


class NotPublished(Exception):
    """The broker did not take the task."""


def celery_publisher(app: Celery, queue: str) -> Publish:
    """Sends the router's task to its queue; bounded by the application's publish policy."""

    def publish(kwargs: Mapping[str, object]) -> None:
        try:
            app.send_task(
                task_names.ROUTE_EVENT, kwargs=dict(kwargs), queue=queue, ignore_result=True
            )
        except (OperationalError, redis.RedisError, OSError) as error:
            raise NotPublished(str(error)) from error

    return publish


@dataclass(frozen=True, slots=True)
class Router:
    """The way to the dispatcher's router."""

    publish: Publish
    queue: str

    def send(self, target: str, event: Mapping[str, object], *, event_id: str) -> Attempt:
        """Tell the router of an event; what follows is its fetch and its acknowledgement."""
        try:
            self.publish({"delivery_id": event_id, "target": target, "event": dict(event)})
        except NotPublished as error:
            return Attempt(Acted.NO, f"the broker did not take it: {error}")
        return Attempt(Acted.NO, f"not acknowledged yet by the router of queue `{self.queue}`")
