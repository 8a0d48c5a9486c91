"""Shapes of answers about where a job could run, camelCase on the wire."""

from __future__ import annotations

from typing import Any, Self

from kici_scaler.domain.explain import Explanation, Miss
from kici_scaler.gateway.models import Shape


class MissView(Shape):
    """Why one scaler does not serve the job; `labelSet` is the one that comes closest."""

    scaler: str
    type: str
    label_set: list[str]
    kind: str
    reason: str

    @classmethod
    def of(cls, miss: Miss) -> Self:
        """From the explanation."""
        return cls(
            scaler=miss.scaler,
            type=miss.type.value,
            label_set=list(miss.label_set),
            kind=miss.kind.value,
            reason=miss.reason,
        )


class CanServeView(Shape):
    """Whether any scaler can ever serve such a job, and which would."""

    served: bool
    scaler: str | None
    type: str | None
    label_set: list[str] | None
    others: list[MissView]
    """Every other scaler and why not, the closest first."""
    hints: list[str]

    @classmethod
    def of(cls, found: Explanation) -> Self:
        """From the explanation."""
        route = found.route
        details: dict[str, Any] = (
            {"scaler": None, "type": None, "label_set": None}
            if route is None
            else {
                "scaler": route.scaler.name,
                "type": route.scaler.type.value,
                "label_set": list(route.label_set.labels),
            }
        )
        return cls(
            served=route is not None,
            others=[MissView.of(each) for each in found.misses],
            hints=list(found.hints),
            **details,
        )
