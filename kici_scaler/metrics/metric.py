"""A metric: its name, what its labels are, and where its values come from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What Prometheus calls it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Carried(StrEnum):
    """Where the values are until somebody asks for them."""

    BY_ROWS = "counted from rows when asked"
    BY_COUNTS = "appended in the transaction it counts; exact"
    BY_TALLY = "added up in its process and stored every few seconds; a killed one loses that much"
    BY_GATEWAY = "known to the gateway that is asked, of itself"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: as Prometheus stores it; those of a counter end in `_total`.
        about: one sentence for its reader, with the unit.
        labels: their names, in the order that values are given in.
        known: label values that are shown with 0 before anything was counted.
        buckets: upper bounds of a histogram, in the unit, without infinity.
    """

    name: str
    kind: Kind
    carried: Carried
    about: str
    labels: tuple[str, ...] = ()
    known: tuple[tuple[str, ...], ...] = ()
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (self.kind is Kind.COUNTER) != self.name.endswith("_total"):
            raise ValueError(f"{self.name}: exactly the names of counters end in _total")
        if (self.kind is Kind.HISTOGRAM) != bool(self.buckets):
            raise ValueError(f"{self.name}: exactly histograms have buckets")
        if any(len(values) != len(self.labels) for values in self.known):
            raise ValueError(f"{self.name}: known values must be one for each label")

    def check(self, values: tuple[str, ...]) -> None:
        """Raises ValueError unless there is one value for each label."""
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {values}")
