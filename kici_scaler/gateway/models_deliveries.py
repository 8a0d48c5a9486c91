"""Shapes of deliveries, camelCase on the wire."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Self

from kici_scaler.domain.delivery import DeliveryKind, DeliveryState
from kici_scaler.gateway.models import Shape
from kici_scaler.store.delivery_views import DeliveryRow


class DeliveryView(Shape):
    """One event to one target; `id` is the event's own, which its target sees.

    `dead_letter` marks what could not be made; `may_have_acted` is what counts then.
    """

    id: str
    agent_id: str
    scaler: str
    kind: DeliveryKind
    target: str
    round: int
    reason: str | None
    state: DeliveryState
    may_have_acted: bool
    attempts: int
    in_flight: bool
    dead_letter: bool
    last_status: int | None
    last_error: str | None
    created_at: datetime
    attempted_at: datetime | None
    next_attempt_at: datetime | None
    closed_at: datetime | None

    @classmethod
    def of(cls, row: DeliveryRow) -> Self:
        """From its row."""
        return cls(**asdict(row))


class DeliveryList(Shape):
    """Deliveries, newest first."""

    deliveries: list[DeliveryView]


class AcknowledgeAnswer(Shape):
    """How a delivery stands after its acknowledgement."""

    delivery_id: str
    state: DeliveryState
