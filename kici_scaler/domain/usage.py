"""What is held against each cap, and whether one more agent fits under it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kici_scaler.domain.limits import Held, Limit, Tally, Whose
from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import UNCAPPED, Cap, Cluster, Scaler


@dataclass(slots=True, eq=False)
class Room:
    """What one scaler's next agent on one machine (None: `event`) must fit under there."""

    machine_id: str | None
    limits: tuple[Limit, ...]

    def blocker(self, need: Need) -> Limit | None:
        """The first limit in the way of such a need."""
        for limit in self.limits:
            if not limit.has_room(need):
                return limit
        return None

    def missing(self, need: Need) -> float:
        """How far the worst of its limits is from letting such a need in."""
        return max(limit.missing(need) for limit in self.limits)


class Ledger:
    """Usage during one decision: what rows hold, plus what this decision has given out.

    Scalers of local backends are counted per machine, those of `event` for the cluster
    (under machine None); everything is counted for the cluster besides. `capacities` bound
    what all scalers together hold on a machine.
    """

    def __init__(
        self,
        cluster: Cluster,
        held: Iterable[Held],
        capacities: Mapping[str, Cap] | None = None,
    ) -> None:
        self._capacities = capacities or {}
        self._machines: dict[str | None, Tally] = {name: Tally() for name in self._capacities}
        self._pool_caps = {pool.name: pool.cap for pool in cluster.machine_pools}
        self._scalers: defaultdict[tuple[str, str | None], Tally] = defaultdict(Tally)
        self._pools: defaultdict[tuple[str, str | None], Tally] = defaultdict(Tally)
        self._pool_limits: dict[tuple[str, str], Limit] = {}
        self._machine_limits: dict[str, Limit] = {}
        self._rooms: dict[tuple[str, str | None], Room] = {}
        self.agents_on: defaultdict[str | None, int] = defaultdict(int)
        self.returned = 0
        """How often agents were given back."""
        self.cluster = Limit(
            Tally(),
            cluster.global_resource_cap,
            Whose.CLUSTER,
            most=cluster.global_max_agents,
        )
        for each in held:
            self.add(each)

    def add(self, held: Held) -> None:
        """Count what live spawns hold; negative amounts give it back."""
        machine_id, count, cpus, memory = (
            held.machine_id, held.count, held.cpu_millis, held.memory_bytes
        )  # fmt: skip
        self.cluster.held.add(count, cpus, memory)
        self._scalers[held.scaler, machine_id].add(count, cpus, memory)
        self.agents_on[machine_id] += count
        if held.pool is not None:
            self._pools[held.pool, machine_id].add(count, cpus, memory)
        if machine_id in self._machines:
            self._machines[machine_id].add(count, cpus, memory)
        if count < 0:
            self.returned += 1

    def rooms(self, scaler: Scaler, machines: Sequence[str | None]) -> Rooms:
        """The places for the scaler's next agent on any of these machines."""
        return Rooms(self, scaler, tuple(machines))

    def room(self, scaler: Scaler, machine_id: str | None) -> Room:
        """Where the scaler's agents on that machine are counted; the same one every time."""
        found = self._rooms.get((scaler.name, machine_id))
        if found is None:
            limits = self._limits(scaler, machine_id)
            found = self._rooms[scaler.name, machine_id] = Room(machine_id, limits)
        return found

    def is_full(self, scaler: Scaler, machine_id: str | None) -> bool:
        """Whether the scaler has all the agents there that it may have."""
        held = self._scalers[scaler.name, machine_id]
        return held.count >= scaler.most_agents_on(machine_id)

    def take(self, room: Room, need: Need) -> None:
        """Count one more agent there."""
        cpus, memory = need.cpu_millis, need.memory_bytes
        self.cluster.held.add(1, cpus, memory)
        for limit in room.limits:
            limit.held.add(1, cpus, memory)
        self.agents_on[room.machine_id] += 1

    def _limits(self, scaler: Scaler, machine_id: str | None) -> tuple[Limit, ...]:
        own = Limit(
            self._scalers[scaler.name, machine_id],
            scaler.resource_cap,
            Whose.SCALER,
            scaler.name,
            machine_id,
            most=scaler.most_agents_on(machine_id),
        )
        if machine_id is None:
            return (own,)
        limits = [own]
        if machine_id in self._capacities and scaler.machine(machine_id) is not None:
            limits.append(self._machine_limit(machine_id))
        if scaler.machine_pool is not None:
            limits.append(self._pool_limit(scaler.machine_pool, machine_id))
        return tuple(limits)

    def _machine_limit(self, machine_id: str) -> Limit:
        found = self._machine_limits.get(machine_id)
        if found is None:
            found = self._machine_limits[machine_id] = Limit(
                self._machines[machine_id],
                self._capacities[machine_id],
                Whose.MACHINE,
                machine_id=machine_id,
            )
        return found

    def _pool_limit(self, pool: str, machine_id: str) -> Limit:
        found = self._pool_limits.get((pool, machine_id))
        if found is None:
            found = self._pool_limits[pool, machine_id] = Limit(
                self._pools[pool, machine_id],
                self._pool_caps.get(pool, UNCAPPED),
                Whose.POOL,
                pool,
                machine_id,
            )
        return found


class Rooms:
    """The places that would do for a scaler's next agent, never none of them."""

    __slots__ = (
        "_first",
        "_is_kept",
        "_ledger",
        "_open",
        "_returned",
        "_scaler",
        "_told",
        "machines",
    )

    def __init__(self, ledger: Ledger, scaler: Scaler, machines: tuple[str | None, ...]) -> None:
        self.machines = machines
        """The machine of each place."""
        self._ledger = ledger
        self._scaler = scaler
        self._first = ledger.room(scaler, machines[0])
        self._is_kept = False
        self._told: dict[tuple[Limit, int, bool], str] = {}
        self._returned, self._open = ledger.returned, self._not_full_among(machines)

    def __iter__(self) -> Iterator[Room]:
        return (self._ledger.room(self._scaler, each) for each in self.machines)

    def best(self, need: Need) -> Room | None:
        """Where the fewest agents are among the machines with room; the first among equals."""
        ledger = self._ledger
        if not ledger.cluster.has_room(need):
            return None
        agents_on = ledger.agents_on
        best, fewest, has_filled = None, math.inf, False
        for room in self._not_full():
            agents = agents_on[room.machine_id]
            if agents < fewest:
                blocker = room.blocker(need)
                if blocker is None:
                    best, fewest = room, agents
                elif blocker.is_full:
                    has_filled = True
        if has_filled:
            self._open = self._not_full_among(room.machine_id for room in self._open)
        return best

    def shortage(self, need: Need) -> str:
        """Why `best` finds nothing: the cap in the way, and on how many machines."""
        blocker = self._blocker(self._first, need)
        if not blocker.is_full:
            return self._tell(blocker, need)
        # What is full is so for every need, and is told in the same words.
        state = (blocker, blocker.held.count, blocker.is_kept)
        told = self._told.get(state)
        if told is None:
            told = self._told[state] = self._tell(blocker, need)
        return told

    def _tell(self, blocker: Limit, need: Need) -> str:
        others = len(self.machines) - 1
        if blocker is self._ledger.cluster or not others:
            return blocker.reason(need)
        machines = "machine" if others == 1 else "machines"
        return f"{blocker.reason(need)}; no room on {others} other {machines} either"

    def keep(self, need: Need) -> None:
        """Let what is freed gather for one request that found no room.

        Where least is missing, under the cap that is in the way there; once a decision. The
        place least is missing at only changes to one where still less is, so that the room
        gathers however the ends of other jobs fall.
        """
        if self._is_kept:
            return
        self._is_kept = True
        # One agent at least is missing where it is full: no nearer than a first that lacks one.
        near = self if self._first.missing(need) > 1 else (self._first, *self._not_full())
        blocker = self._blocker(min(near, key=lambda room: room.missing(need)), need)
        if not blocker.is_kept:
            blocker.keep(need)

    def _not_full(self) -> Sequence[Room]:
        """What is full stays so until somebody gives an agent back, so nobody asks it again."""
        if self._returned != self._ledger.returned:
            self._returned = self._ledger.returned
            self._open = self._not_full_among(self.machines)
        return self._open

    def _not_full_among(self, machines: Iterable[str | None]) -> list[Room]:
        ledger, scaler = self._ledger, self._scaler
        return [ledger.room(scaler, each) for each in machines if not ledger.is_full(scaler, each)]

    def _blocker(self, room: Room, need: Need) -> Limit:
        if not self._ledger.cluster.has_room(need):
            return self._ledger.cluster
        blocker = room.blocker(need)
        assert blocker is not None, "a machine with room would have been taken"
        return blocker
