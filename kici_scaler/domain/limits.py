"""Caps in force: what is held against each, and what one more agent would need."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kici_scaler.domain.quantities import format_cpus, format_memory
from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import Cap

_UNLIMITED = 2**63
"""More agents, thousandths of a CPU or bytes than anything can hold."""


@dataclass(frozen=True, slots=True)
class Held:
    """What live spawns of one scaler hold on one machine, in one pool."""

    scaler: str
    machine_id: str | None
    pool: str | None
    count: int
    cpu_millis: int
    memory_bytes: int

    def given_back(self) -> Held:
        """The same amounts to be taken from a ledger."""
        return Held(
            self.scaler,
            self.machine_id,
            self.pool,
            -self.count,
            -self.cpu_millis,
            -self.memory_bytes,
        )


class Tally:
    """A running count of agents, thousandths of a CPU and bytes."""

    __slots__ = ("count", "cpu_millis", "memory_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.cpu_millis = 0
        self.memory_bytes = 0

    def add(self, count: int, cpu_millis: int, memory_bytes: int) -> None:
        """Count more agents and what they take."""
        self.count += count
        self.cpu_millis += cpu_millis
        self.memory_bytes += memory_bytes


class Whose(StrEnum):
    """Whose cap it is; the value is how its resource cap is spoken of."""

    CLUSTER = "globalResourceCap"
    SCALER = "resourceCap of scaler `{}`"
    POOL = "pool `{}`"
    MACHINE = "capacity"


class Limit:
    """A cap in force: whose it is, the most it allows, and what is held against it.

    Room may be kept under it for one request that has waited long; that counts as held.
    """

    __slots__ = (
        "_machine_id",
        "_name",
        "_whose",
        "held",
        "is_kept",
        "most",
        "most_cpu",
        "most_memory",
    )

    def __init__(
        self,
        held: Tally,
        cap: Cap,
        whose: Whose,
        name: str = "",
        machine_id: str | None = None,
        *,
        most: int = _UNLIMITED,
    ) -> None:
        self.held = held
        self.most = most
        self.most_cpu = _UNLIMITED if cap.cpu_millis is None else cap.cpu_millis
        self.most_memory = _UNLIMITED if cap.memory_bytes is None else cap.memory_bytes
        self.is_kept = False
        self._whose, self._name, self._machine_id = whose, name, machine_id

    def has_room(self, need: Need) -> bool:
        """Whether one more such need fits."""
        held = self.held
        return (
            held.count < self.most
            and held.cpu_millis + need.cpu_millis <= self.most_cpu
            and held.memory_bytes + need.memory_bytes <= self.most_memory
        )

    @property
    def is_full(self) -> bool:
        """Whether no agent fits any more, however small."""
        return self.held.count >= self.most

    @property
    def is_exceeded(self) -> bool:
        """Whether more is held than it allows."""
        held = self.held
        return (
            held.count > self.most
            or held.cpu_millis > self.most_cpu
            or held.memory_bytes > self.most_memory
        )

    def missing(self, need: Need) -> float:
        """How much would have to be freed, in multiples of the need; 0 or less when it fits."""
        held = self.held
        return max(
            held.count + 1 - self.most,
            (held.cpu_millis + need.cpu_millis - self.most_cpu) / (need.cpu_millis or 1),
            (held.memory_bytes + need.memory_bytes - self.most_memory) / (need.memory_bytes or 1),
        )

    def lacking(self, need: Need) -> tuple[int, int, int]:
        """Agents, thousandths of a CPU and bytes that would have to be freed; 0 when it fits."""
        held = self.held
        return (
            max(0, held.count + 1 - self.most),
            max(0, held.cpu_millis + need.cpu_millis - self.most_cpu),
            max(0, held.memory_bytes + need.memory_bytes - self.most_memory),
        )

    def concerns(self, held: Held) -> bool:
        """Whether what is held there counts against this cap."""
        if self._whose is Whose.CLUSTER:
            return True
        if self._whose is Whose.MACHINE:
            return held.machine_id == self._machine_id
        name = held.scaler if self._whose is Whose.SCALER else held.pool
        return name == self._name and held.machine_id == self._machine_id

    def keep(self, need: Need) -> None:
        """Set the room that is left aside, up to the need, so that what is freed gathers.

        Who takes nothing of what is short still fits.
        """
        held = self.held
        held.count = min(held.count + 1, max(held.count, self.most))
        held.cpu_millis = min(
            held.cpu_millis + need.cpu_millis, max(held.cpu_millis, self.most_cpu)
        )
        held.memory_bytes = min(
            held.memory_bytes + need.memory_bytes, max(held.memory_bytes, self.most_memory)
        )
        self.is_kept = True

    def reason(self, need: Need) -> str:
        """Why such a need does not fit, for people."""
        kept = ", room kept for a request that waits longer included" if self.is_kept else ""
        return f"{self._shortage(need)}{kept}"

    def _shortage(self, need: Need) -> str:
        held, most_cpu = self.held, self.most_cpu
        where = "" if self._machine_id is None else f" on machine `{self._machine_id}`"
        if self.is_full:
            is_cluster = self._whose is Whose.CLUSTER
            holder = "the cluster (globalMaxAgents)" if is_cluster else f"scaler `{self._name}`"
            return f"{holder} holds {held.count} of its {self.most} agents{where}"
        cap = f"{self._whose.value.format(self._name)}{where}"
        if held.cpu_millis + need.cpu_millis > most_cpu:
            return (
                f"{cap}: {format_cpus(held.cpu_millis)} of {format_cpus(most_cpu)} CPUs are taken"
                f" and {format_cpus(need.cpu_millis)} are needed"
            )
        return (
            f"{cap}: {format_memory(held.memory_bytes)} of {format_memory(self.most_memory)}"
            f" memory are taken and {format_memory(need.memory_bytes)} are needed"
        )
