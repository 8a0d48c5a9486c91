"""The agents of a simulation, and what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kici_scaler.domain.labels import MachineFacts, normalise, offer
from kici_scaler.domain.limits import Held
from kici_scaler.domain.machines import MachineView
from kici_scaler.domain.prespawned import Prespawned, Ready
from kici_scaler.domain.resources import Shape
from kici_scaler.domain.scalers import LabelSet, Scaler
from kici_scaler.domain.spawn import ENDING, SpawnState
from kici_scaler.domain.warm import Member
from kici_scaler.service.simulate.demand import Fate

_Place = tuple[str, str | None, str | None]


@dataclass(slots=True, eq=False)
class Agent:
    """One agent from its reservation on. Times in seconds since 1970."""

    id: str
    scaler: Scaler
    label_set: LabelSet
    machine_id: str | None
    shape: Shape
    reserved: float
    state: SpawnState = SpawnState.RESERVED
    fate: Fate | None = None
    warm: bool = False
    digest: str | None = None
    idle_since: float = 0.0
    gone: float | None = None

    @property
    def held(self) -> Held:
        """What it counts for against caps."""
        need = self.shape.requests
        pool = self.scaler.machine_pool if self.scaler.type.is_local else None
        return Held(self.scaler.name, self.machine_id, pool, 1, need.cpu_millis, need.memory_bytes)

    @property
    def is_unused(self) -> bool:
        """Whether it was started ahead of demand and never had a job."""
        return self.warm and self.fate is None


@dataclass(slots=True)
class Agents:
    """All that are there, and what they hold together."""

    machines: Sequence[MachineView]
    live: dict[str, Agent] = field(default_factory=dict)
    lives: list[Agent] = field(default_factory=list)
    """Everyone there ever was."""
    idle_seconds: float = 0.0
    """How long agents stood ready without a job."""
    idle_cpu_seconds: float = 0.0
    _held: dict[_Place, list[int]] = field(default_factory=dict)
    _likes: dict[tuple[str, int, str | None], Prespawned] = field(default_factory=dict)

    def add(self, agent: Agent) -> None:
        """A reservation is made."""
        self.live[agent.id] = agent
        self.lives.append(agent)
        self._count(agent, 1)

    def remove(self, agent: Agent, now: float) -> None:
        """It holds nothing any more."""
        agent.gone = now
        del self.live[agent.id]
        self._count(agent, -1)

    def held(self) -> list[Held]:
        """What all hold, by place."""
        return [Held(*place, *amounts) for place, amounts in self._held.items() if amounts[0]]

    def ending(self) -> list[Held]:
        """What those hold that are being torn down."""
        return [each.held for each in self.live.values() if each.state in ENDING]

    def ready(self) -> list[Ready]:
        """Agents that could be given a job, by kind, the oldest first."""
        kinds: dict[Prespawned, list[Agent]] = {}
        for each in self.live.values():
            if each.is_unused and each.state is SpawnState.IDLE:
                kinds.setdefault(self.like(each), []).append(each)
        return [
            Ready(like, sorted((_time(each.idle_since), each.id) for each in found))
            for like, found in kinds.items()
        ]

    def members(self, now: float) -> Iterator[Member]:
        """Agents of warm pools as plans see them."""
        for each in self.live.values():
            if each.is_unused:
                yield Member(
                    agent_id=each.id,
                    state=each.state,
                    like=self.like(each),
                    label_set_index=each.label_set.index,
                    digest=each.digest,
                    is_present=True,
                    is_leaving=False,
                    idle_seconds=now - each.idle_since if each.state is SpawnState.IDLE else 0.0,
                    held=each.held,
                )

    def like(self, agent: Agent) -> Prespawned:
        """What decides whom it serves."""
        key = agent.scaler.name, agent.label_set.index, agent.machine_id
        found = self._likes.get(key)
        if found is None:
            its = offer(agent.scaler, agent.label_set, self._facts_of(agent))
            name = normalise(agent.label_set.labels)
            found = Prespawned(agent.scaler.name, name, its.routable, its.gate, agent.shape)
            self._likes[key] = found
        return found

    def _facts_of(self, agent: Agent) -> MachineFacts | None:
        return next(
            (
                each.facts_for(agent.scaler)
                for each in self.machines
                if each.id == agent.machine_id and each.is_for(agent.scaler)
            ),
            None,
        )

    def stops_idling(self, agent: Agent, now: float) -> None:
        """It gets a job or goes; the time it stood ready is what it cost."""
        if agent.state is SpawnState.IDLE:
            seconds = now - agent.idle_since
            self.idle_seconds += seconds
            self.idle_cpu_seconds += seconds * agent.shape.requests.cpu_millis / 1000

    def by_scaler(self) -> Counter[str]:
        """How many each scaler has."""
        return Counter(each.scaler.name for each in self.live.values())

    def totals(self) -> tuple[int, int, int]:
        """Agents, thousandths of a CPU and bytes that are held."""
        count = cpus = memory = 0
        for amounts in self._held.values():
            count, cpus, memory = count + amounts[0], cpus + amounts[1], memory + amounts[2]
        return count, cpus, memory

    def _count(self, agent: Agent, times: int) -> None:
        held = agent.held
        place = held.scaler, held.machine_id, held.pool
        amounts = self._held.setdefault(place, [0, 0, 0])
        for index, amount in enumerate((held.count, held.cpu_millis, held.memory_bytes)):
            amounts[index] += times * amount


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
