"""What is held against each cap, and what one more agent would make of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kici_scaler.domain.quantities import format_cpus, format_memory
from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import Cap, Cluster, Scaler


@dataclass(frozen=True, slots=True)
class Held:
    """What live spawns of one scaler hold on one machine, in one pool."""

    scaler: str
    machine_id: str | None
    pool: str | None
    count: int
    cpu_millis: int
    memory_bytes: int


class Tally:
    """A running count of agents, thousandths of a CPU and bytes."""

    __slots__ = ("count", "cpu_millis", "memory_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.cpu_millis = 0
        self.memory_bytes = 0

    def add(self, count: int, cpu_millis: int, memory_bytes: int) -> None:
        self.count += count
        self.cpu_millis += cpu_millis
        self.memory_bytes += memory_bytes

    def beyond(self, need: Need, cap: Cap) -> str | None:
        """How the cap would be passed by one more such need, or None."""
        if cap.cpu_millis is not None and self.cpu_millis + need.cpu_millis > cap.cpu_millis:
            return (
                f"{format_cpus(self.cpu_millis)} of {format_cpus(cap.cpu_millis)} CPUs are taken"
                f" and {format_cpus(need.cpu_millis)} are needed"
            )
        if (
            cap.memory_bytes is not None
            and self.memory_bytes + need.memory_bytes > cap.memory_bytes
        ):
            return (
                f"{format_memory(self.memory_bytes)} of {format_memory(cap.memory_bytes)} memory"
                f" are taken and {format_memory(need.memory_bytes)} are needed"
            )
        return None


class Ledger:
    """Usage during one decision: what rows hold, plus what this decision has given out.

    Scalers of local backends are counted per machine, those of `event` for the cluster
    (under machine None); everything is counted for the cluster besides.
    """

    def __init__(self, held: Iterable[Held]) -> None:
        self.cluster = Tally()
        self.scalers: defaultdict[tuple[str, str | None], Tally] = defaultdict(Tally)
        self.pools: defaultdict[tuple[str, str | None], Tally] = defaultdict(Tally)
        self.machines: defaultdict[str | None, int] = defaultdict(int)
        for each in held:
            amounts = (each.count, each.cpu_millis, each.memory_bytes)
            self.cluster.add(*amounts)
            self.scalers[each.scaler, each.machine_id].add(*amounts)
            self.machines[each.machine_id] += each.count
            if each.pool is not None:
                self.pools[each.pool, each.machine_id].add(*amounts)

    def take(self, scaler: Scaler, machine_id: str | None, need: Need) -> None:
        """Count one more agent of the scaler there."""
        amounts = (1, need.cpu_millis, need.memory_bytes)
        self.cluster.add(*amounts)
        self.scalers[scaler.name, machine_id].add(*amounts)
        self.machines[machine_id] += 1
        if scaler.machine_pool is not None and machine_id is not None:
            self.pools[scaler.machine_pool, machine_id].add(*amounts)

    def set_aside(
        self, scaler: Scaler, machine_id: str | None, need: Need, blocked: Blocked
    ) -> None:
        """Keep room for one need under the cap that blocks it, so that it can gather."""
        amounts = (1, need.cpu_millis, need.memory_bytes)
        if blocked.by == "cluster":
            self.cluster.add(*amounts)
        elif blocked.by == "pool" and scaler.machine_pool is not None:
            self.pools[scaler.machine_pool, machine_id].add(*amounts)
        else:
            self.scalers[scaler.name, machine_id].add(*amounts)

    def blocked_in_cluster(self, cluster: Cluster, need: Need) -> Blocked | None:
        """Which cluster-wide cap one more agent would pass."""
        if self.cluster.count >= cluster.global_max_agents:
            return Blocked(
                "cluster",
                f"the cluster holds {self.cluster.count} of its "
                f"{cluster.global_max_agents} agents (globalMaxAgents)",
            )
        beyond = self.cluster.beyond(need, cluster.global_resource_cap)
        return None if beyond is None else Blocked("cluster", f"globalResourceCap: {beyond}")

    def blocked_at(
        self, cluster: Cluster, scaler: Scaler, machine_id: str | None, need: Need
    ) -> Blocked | None:
        """Which cap of the scaler or its pool one more agent would pass on that machine."""
        mine = self.scalers[scaler.name, machine_id]
        where = "" if machine_id is None else f" on machine `{machine_id}`"
        if mine.count >= scaler.max_agents:
            return Blocked(
                "scaler",
                f"scaler `{scaler.name}` holds {mine.count} of its {scaler.max_agents}"
                f" agents{where}",
            )
        beyond = mine.beyond(need, scaler.resource_cap)
        if beyond is not None:
            return Blocked("scaler", f"resourceCap of scaler `{scaler.name}`{where}: {beyond}")
        pool = cluster.pool(scaler.machine_pool) if scaler.machine_pool else None
        if pool is None or machine_id is None:
            return None
        beyond = self.pools[pool.name, machine_id].beyond(need, pool.cap)
        return None if beyond is None else Blocked("pool", f"pool `{pool.name}`{where}: {beyond}")


@dataclass(frozen=True, slots=True)
class Blocked:
    """A cap in the way: whose (`cluster`, `scaler` or `pool`), and the sentence for people."""

    by: str
    reason: str
