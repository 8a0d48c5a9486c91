"""Lifecycle events on a capped Redis stream, and optionally as a task for a dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import redis
import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from config.celery_settings import KEY_PREFIX
from kici_scaler.store.events import EventRow

log = structlog.get_logger(__name__)

STREAM = f"{KEY_PREFIX}events"
MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class EventStream:
    """Appends events to the stream; entry ids are `<event id>-0`, so a repeat adds nothing.

    Args:
        task: name of the dispatcher's task that gets each batch as `events=[...]`, or None.
        queue: the queue that its workers consume.
    """

    client: redis.Redis
    app: Celery
    task: str | None = None
    queue: str = "events"

    def take(self, batch: Sequence[EventRow]) -> bool:
        """Append a batch and send the task; False when Redis did not take all of it."""
        try:
            self._append(batch)
            if self.task is not None:
                payload = [_plain(event) for event in batch]
                self.app.send_task(self.task, kwargs={"events": payload}, queue=self.queue)
        except (redis.RedisError, OperationalError) as error:
            log.warning("events not handed over yet", error=str(error))
            return False
        return True

    def _append(self, batch: Sequence[EventRow]) -> None:
        """All of them in one round trip, or none: a later one would keep those before it out."""
        with self.client.pipeline(transaction=True) as pipeline:
            for event in batch:
                fields = {key: str(it) for key, it in _plain(event).items() if it is not None}
                pipeline.xadd(STREAM, fields, id=f"{event.id}-0", maxlen=MOST_KEPT)  # type: ignore[arg-type]  # str is a field value
            for answer in pipeline.execute(raise_on_error=False):
                # The stream has this id or a later one: it was appended before.
                if isinstance(answer, Exception) and "equal or smaller" not in str(answer):
                    raise answer


def _plain(event: EventRow) -> dict[str, object]:
    return {
        "id": event.id,
        "timestampMs": int(event.at.timestamp() * 1000),
        "eventType": event.type,
        "agentId": event.agent_id,
        "jobId": event.job_id,
        "runId": event.run_id,
        "detail": event.detail,
    }
