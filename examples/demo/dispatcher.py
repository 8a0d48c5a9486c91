"""A plain dispatcher: asks for agents by Celery task, follows its jobs by HTTP.

It knows of kici-scaler what any dispatcher may know: the client package, the broker's and
the gateway's URLs, and a dispatcher's key.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from examples.demo.jobs import DemoJob
from kici_scaler.client import DispatcherClient, JobResult, LogLine
from kici_scaler.client.celery_client import CeleryDispatcherClient
from kici_scaler.errors import KiciError

FINISHED = "request.finished"


@dataclass(frozen=True, slots=True)
class Finished:
    """A job that is over."""

    job: DemoJob
    agent_id: str | None
    result: JobResult
    lines: tuple[LogLine, ...]
    asked_at: datetime | None

    @property
    def waited(self) -> float | None:
        """Seconds from the request to the start of its command."""
        return _seconds(self.asked_at, self.result.started_at)

    @property
    def ran(self) -> float | None:
        """Seconds its command took."""
        return _seconds(self.result.started_at, self.result.finished_at)

    @property
    def complaint(self) -> str:
        """What is wrong about its end; empty when it ended as it should."""
        return self.job.ending.complaint(self.result, [line.text for line in self.lines])


@dataclass
class Dispatcher:
    """Submits jobs in the background, and collects how they end."""

    jobs: Sequence[DemoJob]
    broker: CeleryDispatcherClient
    scaler: DispatcherClient
    finished: dict[str, Finished] = field(default_factory=dict)
    problem: KiciError | None = None
    """Why jobs could not be submitted."""
    _events_seen: int = 0

    def submit_all(self) -> None:
        """Ask for an agent for each job, one task a job; returns at once."""
        threading.Thread(target=self._submit, name="dispatcher", daemon=True).start()

    def collect(self) -> list[Finished]:
        """The jobs that ended since the last call.

        Raises:
            ClientError: the gateway does not answer.
        """
        ended = []
        for event in self.scaler.events(self._events_seen, follow=False):
            self._events_seen = event.id
            if event.type == FINISHED and event.job_id is not None:
                ended.append(self._finish(event.job_id, event.agent_id))
        return [each for each in ended if each is not None]

    @property
    def is_done(self) -> bool:
        """Whether every job is over."""
        return len(self.finished) == len(self.jobs)

    def cancel_rest(self) -> None:
        """Call off what is not over."""
        for job in self.jobs:
            if job.job_id not in self.finished:
                self.scaler.cancel(job.job_id, reason="the demo ends")

    def _submit(self) -> None:
        try:
            for job in self.jobs:
                self.broker.request(job.request())
        except KiciError as error:
            self.problem = error

    def _finish(self, job_id: str, agent_id: str | None) -> Finished | None:
        job = next((each for each in self.jobs if each.job_id == job_id), None)
        if job is None or job_id in self.finished:
            return None
        self.finished[job_id] = Finished(
            job,
            agent_id,
            self.scaler.wait(job_id, timeout=10.0),
            tuple(self.scaler.log(job_id)),
            self.scaler.get(job_id).created_at,
        )
        return self.finished[job_id]


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()
