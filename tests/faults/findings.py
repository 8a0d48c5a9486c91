"""What broke an invariant, by its kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields


@dataclass
class Findings:
    """What broke an invariant; all empty when nothing did."""

    lost: list[str] = field(default_factory=list)
    """Jobs that never ended."""
    doubled: list[str] = field(default_factory=list)
    """Jobs that began more than once."""
    wronged: list[str] = field(default_factory=list)
    """Jobs whose end is not the one they had."""
    leaked: list[str] = field(default_factory=list)
    """Rows or processes that were left behind."""
    over_cap: list[str] = field(default_factory=list)
    """Admissions past a cap, from the history that a trigger kept."""
    killed: list[str] = field(default_factory=list)
    """Agents condemned for their absence though no fault had killed them."""

    @property
    def none(self) -> bool:
        """Whether every invariant held."""
        return not any(getattr(self, each.name) for each in fields(self))

    @classmethod
    def merged(cls, many: Iterable[Findings]) -> Findings:
        """Those of several runs together."""
        total = cls()
        for each in many:
            for kind in fields(cls):
                getattr(total, kind.name).extend(getattr(each, kind.name))
        return total
