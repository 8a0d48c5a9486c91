"""The jobs of a simulation that wait, by kind: alike in everything a decision looks at."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import merge

from kici_scaler.domain.admission import Refuse
from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.scalers import Resources
from kici_scaler.service.simulate.trace import Job

PER_KIND = 12
"""Of one kind that a decision looks at; it is made again while it serves somebody."""
_Kind = tuple[int, frozenset[str], Resources, bool]


@dataclass(slots=True, eq=False)
class Fate:
    """What became of a job. Times in seconds since 1970."""

    job: Job
    waiting: Waiting
    queue: Queue
    started: float | None = None
    ended: float | None = None
    scaler: str = ""
    was_hit: bool = False
    """Whether a warm agent was ready for it."""
    reason: str = ""
    """Why it never ran."""

    @property
    def wait(self) -> float | None:
        """Seconds from the request to the start of the job."""
        return None if self.started is None else self.started - self.job.at


@dataclass(slots=True, eq=False)
class Queue:
    """Jobs of one kind."""

    fates: deque[Fate] = field(default_factory=deque)
    arrived: int = 0
    served: int = 0
    cap: str | None = None
    """What it waits for, after the last decision."""
    reason: str = ""
    told: dict[str, int] = field(default_factory=dict)
    """How many arrivals were counted against each cap."""


@dataclass(slots=True)
class CapHit:
    """What a cap did: jobs that waited for it, and for how long all together."""

    jobs: int = 0
    job_seconds: float = 0.0


class Demand:
    """Everybody who waits."""

    def __init__(self) -> None:
        self._queues: dict[_Kind, Queue] = {}
        self._since = 0.0
        self.count = 0
        self.hits: dict[str, CapHit] = {}

    def add(self, job: Job) -> Fate:
        """One more job waits."""
        queue = self._queues.setdefault(_kind(job), Queue())
        fate = Fate(job, _waiting(job), queue)
        queue.fates.append(fate)
        queue.arrived += 1
        self.count += 1
        return fate

    def heads(self) -> list[Fate]:
        """Those a decision looks at, the most urgent first."""
        parts = [list(_first(queue)) for queue in self._queues.values() if queue.fates]
        return list(merge(*parts, key=_urgency))

    @property
    def is_cut(self) -> bool:
        """Whether more wait than a decision looks at."""
        return any(len(queue.fates) > PER_KIND for queue in self._queues.values())

    def served(self, fates: Collection[Fate]) -> None:
        """These wait no longer."""
        for fate in fates:
            queue = fate.queue
            queue.fates.remove(fate)
            queue.served += 1
            if not queue.fates:
                queue.cap = None
        self.count -= len(fates)

    def refused(self, queue: Queue, refusal: Refuse) -> None:
        """Note what the jobs of this kind wait for."""
        queue.reason = refusal.reason
        queue.cap = None
        if refusal.code is WaitCode.AT_CAPACITY:
            queue.cap = cap_of(refusal.reason)
            counted = max(queue.told.get(queue.cap, 0), queue.served)
            hit = self.hits.setdefault(queue.cap, CapHit())
            hit.jobs += max(0, queue.arrived - counted)
            queue.told[queue.cap] = queue.arrived

    def pass_time(self, now: float) -> None:
        """Charge the time since the last call to the caps that jobs wait for."""
        for queue in self._queues.values():
            if queue.cap is not None:
                self.hits[queue.cap].job_seconds += len(queue.fates) * (now - self._since)
        self._since = now

    def left(self) -> Iterator[Fate]:
        """Those who still wait, with the reason."""
        for queue in self._queues.values():
            for fate in queue.fates:
                fate.reason = queue.reason or "was never decided"
                yield fate


def cap_of(reason: str) -> str:
    """The cap that a refusal names, without its figures."""
    holder, holds, _ = reason.partition(" holds ")
    return f"{holder}: agents" if holds and ":" not in holder else reason.partition(":")[0]


def _first(queue: Queue) -> Iterator[Fate]:
    for place, fate in enumerate(queue.fates):
        if place == PER_KIND:
            return
        yield fate


def _urgency(fate: Fate) -> tuple[int, float, str]:
    return -fate.job.priority, fate.job.at, fate.job.id


def _kind(job: Job) -> _Kind:
    return job.priority, job.labels, job.resources, job.own_image


def _waiting(job: Job) -> Waiting:
    return Waiting(
        job_id=job.id,
        run_id=job.id,
        labels=job.labels,
        declared=job.resources,
        image="its own" if job.own_image else None,
        org=job.org,
        priority=job.priority,
        enqueued_at=datetime.fromtimestamp(job.at, UTC),
    )
