"""Hints as Celery tasks, at most one waiting for each place and kind.

A hint carries no more than where to look. While one waits in a queue another would find
nothing more, so a short-lived mark in Redis keeps it to one; the task removes the mark
before it reads rows, so a row committed after that is hinted again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis
import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.retry import Retry

from config.celery_settings import (
    ADMIT,
    KEY_PREFIX,
    WARM,
    celery_configuration,
    destroy_queue,
    spawn_queue,
)
from config.redis_transport import keep_clients
from kici_scaler.broker import task_names, wakeups
from kici_scaler.broker.wakeups import Wakeup
from kici_scaler.service.ports import Place, Step, Turn
from kici_scaler.store.warm import Bound

log = structlog.get_logger(__name__)

MARK_MILLIS = 2_000
DEBOUNCE_MILLIS = 250
"""Freed capacity is collected this long, so that a burst of ends is one admission pass."""
LEFT = "left"
"""Trigger and mark of the pass that sees what was stored while somebody decided."""
LEFT_MILLIS = 50
"""Longer than some small passes and their rests: who comes next has seen what is left by then."""
AFTER_REST_MILLIS = 10
"""How much longer than a rest, where it is a long one."""
MUTE_SECONDS = 2.0
"""After a failed send, how long hints are left to the sweep."""
BATCH_OF_IDS = 100
MOST_LOOKS = 1_000
LOOKS_MILLIS = 60_000
"""By then the sweep has asked again."""


def short_lived_client(url: str) -> redis.Redis:
    """A client that fails fast: no retries, short time-outs; a lost reply is an error."""
    return redis.Redis.from_url(
        url, socket_timeout=2, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
    )


def sender(redis_url: str, role: str) -> Celery:
    """A Celery application that only sends hints; monitors hear of one when a worker has it."""
    keep_clients()
    app = Celery(f"kici-scaler-{role}", set_as_current=False)
    app.conf.update(celery_configuration(redis_url, f"kici-{role}"), task_send_sent_event=False)
    return app


def wanted_looks(task: str, queue: str) -> str:
    """The set of agents that the look which waits in this queue should see to as well."""
    return f"{KEY_PREFIX}look:{task}:{queue}"


def mark_of(task: str, queue: str) -> str:
    """The key that says a hint of this kind waits in this queue."""
    return f"{KEY_PREFIX}hint:{task}:{queue}"


@dataclass(slots=True)
class CeleryHints:
    """Hints through the broker; a broker that does not answer is left alone for a while."""

    app: Celery
    marks: redis.Redis
    _muted_until: float = field(default=0.0)

    def step(self, step: Step, places: Iterable[Place]) -> None:
        """One task for each place, unless one waits there already."""
        name, queue = {
            Step.START: (task_names.spawn_task, spawn_queue),
            Step.DESTROY: (task_names.destroy_task, destroy_queue),
        }[step]
        for place in places:
            self._send_once(
                name(place.backend_type),
                queue(place.backend_type, place.machine_id),
                {"machine": place.machine_id},
            )

    def inspect(self, place: Place, agent_ids: Sequence[str]) -> None:
        """Ask for a look at these agents' compute; while a task waits, it is asked for more."""
        queue = destroy_queue(place.backend_type, place.machine_id)
        task = task_names.inspect_task(place.backend_type)
        for start in range(0, len(agent_ids), BATCH_OF_IDS):
            batch = list(agent_ids[start : start + BATCH_OF_IDS])
            if not self._add_to_waiting(task, queue, batch):
                self._send(task, queue, {"machine": place.machine_id, "agents": batch})

    def waiting_looks(self, task: str, queue: str) -> list[str]:
        """Take over the agents that came after the task that is being answered was sent."""
        try:
            found: Any = self.marks.spop(wanted_looks(task, queue), MOST_LOOKS)
        except redis.RedisError as error:
            log.info("more looks not read; the sweep repeats them", error=str(error))
            return []
        return [each.decode() if isinstance(each, bytes) else str(each) for each in found or ()]

    def _add_to_waiting(self, task: str, queue: str, batch: Sequence[str]) -> bool:
        """Whether a task waits already, or none can be sent."""
        if self._is_muted():
            return True
        key = wanted_looks(task, queue)
        try:
            if self.marks.set(mark_of(task, queue), "1", nx=True, px=MARK_MILLIS):
                return False
            self.marks.sadd(key, *batch)
            self.marks.pexpire(key, LOOKS_MILLIS)
        except redis.RedisError as error:
            self._mute(task, error)
        return True

    def admit(self, *, soon: bool = False) -> None:
        """One admission pass; `soon` waits a moment for more freed capacity."""
        trigger = {"trigger": "hook" if soon else "sweep"}
        self._pass(task_names.ADMIT_WAITING, ADMIT, soon, trigger)

    def admit_left(self, turn: Turn) -> bool:
        """One admission pass for all that is left until it begins; whether one is on its way.

        It waits a moment, in which another pass has usually seen them. One that waits for freed
        capacity may come much later, so this one has a mark of its own.
        """
        pause = max(LEFT_MILLIS / 1000, turn.rests_for + AFTER_REST_MILLIS / 1000)
        return self._send_once(
            task_names.ADMIT_WAITING, ADMIT, {"trigger": LEFT}, countdown=pause, mark=f":{LEFT}"
        )

    def fill(self, *, soon: bool = False) -> None:
        """One pass over the warm pools; `soon` waits a moment for more to do."""
        self._pass(task_names.WARM_FILL, WARM, soon)

    def wake_gateways(self, gateways: Iterable[tuple[str, str]]) -> None:
        """Publish to each gateway's own channel."""
        self._wake((gateway, Wakeup(agent_id)) for gateway, agent_id in gateways)

    def offer(self, offers: Iterable[Bound]) -> None:
        """The same, with what each agent is to be offered."""
        self._wake(
            (each.gateway, Wakeup(each.agent_id, each.job_id, each.run_id)) for each in offers
        )

    def _wake(self, gateways: Iterable[tuple[str, Wakeup]]) -> None:
        if self._is_muted():
            return
        try:
            wakeups.publish(self.marks, gateways)
        except redis.RedisError as error:
            self._mute("wake-up", error)

    def clear(self, task: str, queue: str) -> None:
        """The waiting hint is being answered; what is committed from now on is hinted anew."""
        try:
            mark = mark_of(task, queue)
            self.marks.delete(mark, f"{mark}:{LEFT}")
        except redis.RedisError as error:
            log.info("hint mark not cleared; it lapses", hint=task, error=str(error))

    def _pass(
        self, task: str, queue: str, soon: bool, kwargs: Mapping[str, object] | None = None
    ) -> None:
        pause = DEBOUNCE_MILLIS / 1000 if soon else None
        self._send_once(task, queue, dict(kwargs or {}), countdown=pause)

    def _send_once(
        self,
        task: str,
        queue: str,
        kwargs: dict[str, object],
        countdown: float | None = None,
        mark: str = "",
    ) -> bool:
        """Whether it was sent, or another waits."""
        if self._is_muted():
            return False
        try:
            if not self.marks.set(f"{mark_of(task, queue)}{mark}", "1", nx=True, px=MARK_MILLIS):
                return True
        except redis.RedisError as error:
            self._mute(task, error)
            return False
        self._send(task, queue, kwargs, countdown)
        return not self._is_muted()

    def _send(
        self, task: str, queue: str, kwargs: dict[str, object], countdown: float | None = None
    ) -> None:
        if self._is_muted():
            return
        try:
            self.app.send_task(
                task, kwargs=kwargs, queue=queue, countdown=countdown, ignore_result=True
            )
        except (OperationalError, redis.RedisError, OSError) as error:
            self._mute(task, error)

    def _is_muted(self) -> bool:
        return time.monotonic() < self._muted_until

    def _mute(self, what: str, error: Exception) -> None:
        self._muted_until = time.monotonic() + MUTE_SECONDS
        log.warning("hint not sent; the sweep repeats it", hint=what, error=str(error))
