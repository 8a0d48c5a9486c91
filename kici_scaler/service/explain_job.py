"""Why one job waits, or where it went; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import Connection

from kici_scaler.domain.explain import Explanation
from kici_scaler.domain.request import OVER, RequestState, Waiting
from kici_scaler.domain.routing import Wanted
from kici_scaler.errors import NotFound
from kici_scaler.service import status
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import agent_views, events, requests, waiting
from kici_scaler.store.engine import snapshot
from kici_scaler.store.events import EventRow
from kici_scaler.store.requests import RequestRow


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """A job and all that says why it is where it is.

    Attributes:
        asked: what it asks for.
        ahead: requests that are decided before it, in the queue that it waits in; None for one
            that does not wait.
        routing: for one that waits, what would serve it, and why the others would not.
        events: what happened to it, oldest first.
    """

    request: RequestRow
    asked: Waiting
    ahead: int | None
    routing: Explanation | None
    events: tuple[EventRow, ...]


def explain(runtime: Runtime, job_id: str) -> JobExplanation:
    """Everything about a job at one moment.

    Raises:
        NotFound: no request of it is known (any more).
        DatabaseUnreachable: it cannot be told.
    """
    with snapshot(runtime.engine) as connection:
        row = _found(connection, job_id)
        asked = waiting.find(connection, job_id)
        assert asked is not None, "one snapshot shows a row to both statements"
        waits = row.state is RequestState.WAITING
        return JobExplanation(
            request=row,
            asked=asked,
            ahead=waiting.ahead(connection, asked) if waits else None,
            routing=status.explained(connection, wanted_of(asked)) if waits else None,
            events=tuple(events.after(connection, 0, job_id=job_id)),
        )


def find(runtime: Runtime, job_id: str) -> RequestRow:
    """The request of a job, with the agent that it has or had.

    Raises:
        NotFound: there is none (any more).
    """
    with snapshot(runtime.engine) as connection:
        return _found(connection, job_id)


def wanted_of(asked: Waiting) -> Wanted:
    """What routing looks at."""
    return Wanted(
        labels=asked.labels,
        exclude=asked.exclude,
        role=asked.role,
        resources=asked.declared,
        own_image=asked.image is not None,
    )


def _found(connection: Connection, job_id: str) -> RequestRow:
    row = requests.find(connection, [job_id]).get(job_id)
    if row is None:
        raise NotFound(f"no request of job {job_id!r} is known")
    if row.agent_id is None and row.state in OVER:
        return replace(row, agent_id=agent_views.agent_of_job(connection, job_id))
    return row
