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
        amounts = (held.count, held.cpu_millis, held.memory_bytes)
        self.cluster.held.add(*amounts)
        self._scalers[held.scaler, held.machine_id].add(*amounts)
        self.agents_on[held.machine_id] += held.count
        if held.pool is not None:
            self._pools[held.pool, held.machine_id].add(*amounts)
        if held.machine_id in self._machines:
            self._machines[held.machine_id].add(*amounts)

    def rooms(self, scaler: Scaler, machines: Sequence[str | None]) -> Rooms:
        """The places for the scaler's next agent on any of these machines."""
        return Rooms(self, tuple(self.room(scaler, each) for each in machines))

    def room(self, scaler: Scaler, machine_id: str | None) -> Room:
        """Where the scaler's agents on that machine are counted; the same one every time."""
        found = self._rooms.get((scaler.name, machine_id))
        if found is None:
            found = Room(machine_id, tuple(self._limits(scaler, machine_id)))
            self._rooms[scaler.name, machine_id] = found
        return found

    def take(self, room: Room, need: Need) -> None:
        """Count one more agent there."""
        amounts = (1, need.cpu_millis, need.memory_bytes)
        self.cluster.held.add(*amounts)
        for limit in room.limits:
            limit.held.add(*amounts)
        self.agents_on[room.machine_id] += 1

    def _limits(self, scaler: Scaler, machine_id: str | None) -> Iterable[Limit]:
        listed = None if machine_id is None else scaler.machine(machine_id)
        yield Limit(
            self._scalers[scaler.name, machine_id],
            scaler.resource_cap,
            Whose.SCALER,
            scaler.name,
            machine_id,
            most=scaler.most_agents_on(machine_id),
        )
        if machine_id is not None and listed is not None and machine_id in self._capacities:
            yield self._machine_limit(machine_id)
        if scaler.machine_pool is not None and machine_id is not None:
            yield self._pool_limit(scaler.machine_pool, machine_id)

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

    __slots__ = ("_is_kept", "_ledger", "_rooms")

    def __init__(self, ledger: Ledger, rooms: tuple[Room, ...]) -> None:
        self._ledger = ledger
        self._rooms = rooms
        self._is_kept = False

    def __iter__(self) -> Iterator[Room]:
        return iter(self._rooms)

    @property
    def machines(self) -> tuple[str | None, ...]:
        """The machine of each place."""
        return tuple(room.machine_id for room in self._rooms)

    def best(self, need: Need) -> Room | None:
        """Where the fewest agents are among the machines with room; the first among equals."""
        if not self._ledger.cluster.has_room(need):
            return None
        agents_on = self._ledger.agents_on
        best, fewest = None, math.inf
        for room in self._rooms:
            agents = agents_on[room.machine_id]
            if agents < fewest and room.blocker(need) is None:
                best, fewest = room, agents
        return best

    def shortage(self, need: Need) -> str:
        """Why `best` finds nothing: the cap in the way, and on how many machines."""
        blocker = self._blocker(self._rooms[0], need)
        others = len(self._rooms) - 1
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
        blocker = self._blocker(min(self._rooms, key=lambda room: room.missing(need)), need)
        if not blocker.is_kept:
            blocker.keep(need)

    def _blocker(self, room: Room, need: Need) -> Limit:
        if not self._ledger.cluster.has_room(need):
            return self._ledger.cluster
        blocker = room.blocker(need)
        assert blocker is not None, "a machine with room would have been taken"
        return blocker
