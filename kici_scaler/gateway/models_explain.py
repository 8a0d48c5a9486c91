"""The shape of a job's explanation, camelCase on the wire."""

from __future__ import annotations

from typing import Self

from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import Amount
from kici_scaler.gateway.models import EventView, RequestView, Shape
from kici_scaler.gateway.models_routing import CanServeView
from kici_scaler.gateway.models_status import Amounts
from kici_scaler.service.answers import answer_of
from kici_scaler.service.explain_job import JobExplanation


class JobExplanationView(Shape):
    """Why a job waits, or where it went."""

    request: RequestView
    declared: Amounts | None
    """What the job itself asks for; null when that is left to the label set."""
    ahead: int | None
    """Requests that are decided before it; null for one that does not wait."""
    routing: CanServeView | None
    """For one that waits: what would serve it, and why each other scaler would not."""
    events: list[EventView]

    @classmethod
    def of(cls, found: JobExplanation) -> Self:
        """From what was read."""
        return cls(
            request=RequestView.of(found.request, answer_of(found.request)),
            declared=_declared(found.asked.declared.requests),
            ahead=found.ahead,
            routing=None if found.routing is None else CanServeView.of(found.routing),
            events=[EventView.of(each) for each in found.events],
        )


def _declared(asked: Amount) -> Amounts | None:
    if not asked.is_declared:
        return None
    return Amounts.of(Need(asked.cpu_millis or 0, asked.memory_bytes or 0))
