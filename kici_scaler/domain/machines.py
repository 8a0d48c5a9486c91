"""Machines as a decision sees them: whom they serve, and what is in the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.scalers import BackendType, Scaler


@dataclass(frozen=True, slots=True)
class MachineView:
    """A machine as a decision sees it."""

    id: str
    backend_type: BackendType
    facts: MachineFacts | None
    serves: frozenset[str] | None
    """Scaler names, or None for every scaler of its type."""
    obstacle: str | None = None
    """Why it takes nothing new (draining, unreachable), or None."""
    pool_obstacle: str | None = None
    """Why it takes nothing that counts against a machine pool, or None."""
    degraded: Mapping[str, str] = field(default_factory=dict)
    """Why it cannot run certain scalers, by their names."""

    def is_for(self, scaler: Scaler) -> bool:
        """Whether its worker starts agents of that scaler at all."""
        return self.backend_type is scaler.type and (
            self.serves is None or scaler.name in self.serves
        )

    def obstacle_for(self, scaler: Scaler) -> str | None:
        """Why it takes no agent of that scaler now, or None."""
        if self.obstacle is not None:
            return self.obstacle
        if scaler.name in self.degraded:
            return f"cannot run it: {self.degraded[scaler.name]}"
        return self.pool_obstacle if scaler.machine_pool else None


def machines_for(
    scaler: Scaler, facts: Collection[MachineFacts], machines: Sequence[MachineView]
) -> tuple[tuple[str, ...], str]:
    """The machines that may take the scaler's next agent, in a stable order, or why none does.

    Args:
        facts: the kinds of machines that will do; empty where any does.
    """
    mine = [each for each in machines if each.is_for(scaler) and (not facts or each.facts in facts)]
    if not mine:
        return (), (
            f"no machine serves scaler `{scaler.name}`: start a worker with"
            f" `kici-scaler worker {scaler.type}`"
        )
    obstacles = {each.id: each.obstacle_for(scaler) for each in mine}
    able = tuple(sorted(name for name, obstacle in obstacles.items() if obstacle is None))
    told = "; ".join(f"machine `{name}` {why}" for name, why in sorted(obstacles.items()) if why)
    return able, f"scaler `{scaler.name}`: {told}"
