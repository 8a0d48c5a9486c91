"""Machines as a decision sees them: whom they serve, and what is in the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.scalers import UNCAPPED, BackendType, Cap, Cluster, Scaler


@dataclass(frozen=True, slots=True)
class MachineView:
    """A machine as a decision sees it."""

    id: str
    backend_type: BackendType
    facts: MachineFacts | None
    serves: frozenset[str] | None
    """Scaler names, or None for every scaler of its type; a fleet's machines serve their fleet."""
    obstacle: str | None = None
    """Why it takes nothing new (draining, unreachable), or None."""
    pool_obstacle: str | None = None
    """Why it takes nothing that counts against a machine pool, or None."""
    degraded: Mapping[str, str] = field(default_factory=dict)
    """Why it cannot run certain scalers, by their names."""
    is_remote: bool = False
    """Whether it is a machine of a fleet, and not a worker's own host."""
    capacity: Cap = UNCAPPED
    """What it says of itself, where that bounds what may be reserved on it."""

    def is_for(self, scaler: Scaler) -> bool:
        """Whether its worker starts agents of that scaler at all.

        A scaler with a fleet runs on the machines it lists and nowhere else.
        """
        if self.backend_type is not scaler.type or self.is_remote != bool(scaler.machines):
            return False
        if self.is_remote:
            return scaler.machine(self.id) is not None
        return self.serves is None or scaler.name in self.serves

    def facts_for(self, scaler: Scaler) -> MachineFacts | None:
        """What it is for that scaler's agents: its platform, and the labels declared for it."""
        if self.facts is None or not self.is_remote:
            return self.facts
        listed = scaler.machine(self.id)
        if listed is None:
            return self.facts
        return replace(self.facts, labels=self.facts.labels | listed.labels)

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
    able: list[str] = []
    obstacles: list[tuple[str, str]] = []
    for each in machines:
        if each.is_for(scaler) and (not facts or each.facts_for(scaler) in facts):
            obstacle = each.obstacle_for(scaler)
            if obstacle is None:
                able.append(each.id)
            else:
                obstacles.append((each.id, obstacle))
    if able:
        return tuple(sorted(able)), ""
    if obstacles:
        told = "; ".join(f"machine `{name}` {why}" for name, why in sorted(obstacles))
        return (), f"scaler `{scaler.name}`: {told}"
    return (), (
        f"no machine serves scaler `{scaler.name}`: start a worker with"
        f" `kici-scaler worker {scaler.type}`"
    )


def capacities(cluster: Cluster, machines: Sequence[MachineView]) -> dict[str, Cap]:
    """What may be reserved on each machine of a fleet, by all scalers that list it together.

    Of several declarations the smaller one counts; where there is none, what it says of itself.
    """
    found: dict[str, Cap] = {}
    for machine in machines:
        if machine.is_remote:
            listed = (scaler.machine(machine.id) for scaler in cluster.scalers)
            declared = [each.capacity for each in listed if each is not None]
            found[machine.id] = Cap(
                _least([each.cpu_millis for each in declared], machine.capacity.cpu_millis),
                _least([each.memory_bytes for each in declared], machine.capacity.memory_bytes),
            )
    return found


def _least(declared: Sequence[int | None], otherwise: int | None) -> int | None:
    return min((each for each in declared if each is not None), default=otherwise)
