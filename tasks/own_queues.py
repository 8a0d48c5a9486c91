"""The queues of machines that this worker took on while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import redis
import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from config.celery_settings import queues_for
from kici_scaler.domain.scalers import BackendType

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class OwnQueues:
    """Has this worker consume the queues of a machine, by messages to its own control mailbox.

    What it consumes stays so over reconnections. A message that gets lost costs speed alone: the
    rows of each machine are looked at every few seconds besides.
    """

    app: Celery
    worker: str
    """This worker's name among all workers."""

    def consume(self, machine_id: str) -> None:
        """Be told of what is to be done on that machine."""
        self._for_each(machine_id, self.app.control.add_consumer)

    def leave(self, machine_id: str) -> None:
        """Be told no more; what is still in them waits for the next driver."""
        self._for_each(machine_id, self.app.control.cancel_consumer)

    def _for_each(self, machine_id: str, tell: Callable[..., object]) -> None:
        try:
            for queue in queues_for(BackendType.BARE_METAL.value, machine_id):
                tell(queue, destination=[self.worker], reply=False)
        except (OperationalError, redis.RedisError, OSError) as error:
            log.warning("queues of a machine not changed", machine=machine_id, error=str(error))
