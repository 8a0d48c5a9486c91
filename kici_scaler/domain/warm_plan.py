"""What is done about the warm pools now: who is ended, what is started, what is missing.

Nobody with a job is touched. A pool at its target ends nobody; demand comes first, so a
pool asks for nothing that a request left waiting in the same decision could use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kici_scaler.domain.admission import Deciding, Unmet, after_the_probe
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.domain.usage import Rooms
from kici_scaler.domain.warm import Member, Muster, Pool, PoolKey, Roster
from kici_scaler.domain.warm_yield import Yielded

MOST_FILLS = 500
"""Agents that one plan starts: what reserves them is one statement, and the section is held
meanwhile."""


class Cause(StrEnum):
    """Why an agent that never had a job is ended."""

    POOL_GONE = "pool-gone"
    """Its pool left the configuration."""
    SHRUNK = "shrunk"
    """A reload made its pool smaller."""
    OUTDATED = "outdated"
    """Its label set changed; another takes its place."""
    MACHINE_DRAINS = "machine-drains"
    SURPLUS = "surplus"
    """More than the target, and idle for longer than the pool lets surplus ones stay."""
    YIELDED = "yielded"
    """It makes room for a job that waits."""


WHY = {
    Cause.POOL_GONE: "its warm pool left the configuration",
    Cause.SHRUNK: "its warm pool was made smaller",
    Cause.OUTDATED: "its label set changed; an agent of the new one takes its place",
    Cause.MACHINE_DRAINS: "its machine is draining",
    Cause.SURPLUS: "its warm pool has more agents than it shall keep",
    Cause.YIELDED: "it makes room for a job that waits",
}


@dataclass(frozen=True, slots=True)
class End:
    """This agent goes."""

    member: Member
    cause: Cause


@dataclass(frozen=True, slots=True)
class Fill:
    """One more agent of this pool starts on that machine (None: `event`)."""

    pool: Pool
    machine_id: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How a pool stands after this plan: what is still missing, and why."""

    roster: Roster
    short: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything to do."""

    ends: Sequence[End]
    fills: Sequence[Fill]
    standings: Sequence[Standing]
    leaves_more: bool = False
    """More could be started now than one plan starts; another plan may follow at once."""


def plan(found: Muster, deciding: Deciding, yielded: Iterable[Yielded] = ()) -> Plan:
    """What to do about every pool.

    Args:
        deciding: the decision of the waiting requests that came just before; what is
            started is counted in its ledger.
        yielded: who makes room for requests that it left waiting.
    """
    ends = {each.member.agent_id: End(each.member, Cause.YIELDED) for each in yielded}
    for end in _ends(found):
        ends.setdefault(end.member.agent_id, end)
    filling = _Filling(found.rosters, deciding)
    fills = filling.fills()
    for roster in found.rosters:
        outdated = filling.replaceable(roster, ends)
        if outdated is not None:
            ends[outdated.agent_id] = End(outdated, Cause.OUTDATED)
    return Plan(
        tuple(ends.values()),
        fills,
        [filling.standing(each) for each in found.rosters],
        leaves_more=filling.is_cut,
    )


def trim(found: Muster, shrunk: Collection[PoolKey]) -> list[End]:
    """Who goes at once when a reload removed pools or made them smaller.

    What does not exist yet goes first, then what is being made, then what idles; among
    those the outdated and the oldest first.
    """
    ends = [End(each, Cause.POOL_GONE) for each in found.orphans]
    for roster in found.rosters:
        if roster.pool.key in shrunk:
            live = [*_by_progress(roster.in_flight), *_outdated_first(roster)]
            excess = len(live) + len(roster.absent) + roster.static - roster.pool.target
            ends += [End(each, Cause.SHRUNK) for each in live[: max(0, excess)]]
    return ends


def _ends(found: Muster) -> Iterable[End]:
    """Whoever goes whatever else is decided."""
    for orphan in found.orphans:
        yield End(orphan, Cause.POOL_GONE)
    for roster in found.rosters:
        for member in roster.leaving:
            yield End(member, Cause.MACHINE_DRAINS)
        for member in roster.in_flight:
            if member.state is SpawnState.RESERVED and roster.is_outdated(member):
                yield End(member, Cause.OUTDATED)
        yield from _surplus(roster)


def _surplus(roster: Roster) -> Iterable[End]:
    """Outdated agents beyond the target at once, others once they idled for long enough."""
    left = roster.surplus
    for member in _outdated_first(roster):
        if left == 0:
            return
        is_outdated = roster.is_outdated(member)
        if is_outdated or member.idle_seconds > roster.pool.idle_timeout_seconds:
            yield End(member, Cause.OUTDATED if is_outdated else Cause.SURPLUS)
            left -= 1


def _outdated_first(roster: Roster) -> list[Member]:
    return sorted(roster.ready, key=lambda each: not roster.is_outdated(each))


def _by_progress(members: Iterable[Member]) -> list[Member]:
    order = (SpawnState.RESERVED, SpawnState.SPAWNING, SpawnState.BOOTING)
    return sorted(members, key=lambda each: order.index(each.state))


class _Filling:
    """Gives what room is left to the pools, one agent at a time in turn."""

    def __init__(self, rosters: Sequence[Roster], deciding: Deciding) -> None:
        self._rosters = rosters
        self._deciding = deciding
        self._unmet = deciding.unmet()
        self._rooms: dict[PoolKey, Rooms] = {}
        self._filled: set[PoolKey] = set()
        self.is_cut = False
        self.short = {each.pool.key: each.deficit for each in rosters}
        self.why: dict[PoolKey, str] = {}
        for roster in rosters:
            self._open(roster.pool)
        _set_aside(self._unmet, deciding)

    def fills(self) -> list[Fill]:
        """What starts; `short` and `why` say afterwards what does not."""
        fills: list[Fill] = []
        wanting = [each.pool for each in self._rosters if each.pool.key in self._rooms]
        while wanting := [pool for pool in wanting if self.short[pool.key] > 0]:
            left = MOST_FILLS - len(fills)
            fills += [fill for pool in wanting[:left] if (fill := self._one(pool)) is not None]
            wanting = [pool for pool in wanting if pool.key not in self.why]
            if len(fills) == MOST_FILLS:
                self.is_cut = any(self.short[pool.key] > 0 for pool in wanting)
                break
        return fills

    def replaceable(self, roster: Roster, ended: Collection[str]) -> Member | None:
        """The agent of an old label set that goes next; only one is ever on its way.

        It waits until everyone else of the pool is there, and until the new one is sure to
        find room in its place (not while other pools want more than this plan starts), so that
        the pool never has less than it must.
        """
        pool, outdated = roster.pool, roster.outdated
        moving = (roster.in_flight, roster.ending, roster.absent, roster.leaving)
        rooms = self._rooms.get(pool.key)
        if not outdated or rooms is None or any(moving) or pool.key in self._filled:
            return None
        if self.is_cut or any(each.agent_id in ended for each in roster.ready):
            return None
        return outdated[0] if self._fits_instead(rooms, pool, outdated[0]) else None

    def standing(self, roster: Roster) -> Standing:
        """What the pool misses after all that, and why."""
        key = roster.pool.key
        short = self.short[key]
        why = self.why.get(key, "") if short else roster.pool.inert
        return Standing(roster, short, why)

    def _open(self, pool: Pool) -> None:
        """Where the pool may start agents, or why nowhere."""
        if pool.inert or pool.closed or pool.route is None:
            self.why[pool.key] = pool.inert or pool.closed
            return
        demand = _claim_on(pool, self._unmet)
        rooms = self._deciding.rooms_for(pool.route)
        if demand:
            self.why[pool.key] = demand
        elif isinstance(rooms, str):
            self.why[pool.key] = rooms
        else:
            self._rooms[pool.key] = rooms

    def _one(self, pool: Pool) -> Fill | None:
        assert pool.route is not None, "a pool with rooms has a route"
        name, need, rooms = pool.scaler.name, pool.route.shape.requests, self._rooms[pool.key]
        if not self._deciding.may_start(name):
            self.why[pool.key] = after_the_probe(name)
            return None
        room = rooms.best(need)
        if room is None:
            self.why[pool.key] = rooms.shortage(need)
            return None
        self._deciding.start(name, room, need)
        self.short[pool.key] -= 1
        self._filled.add(pool.key)
        return Fill(pool, room.machine_id)

    def _fits_instead(self, rooms: Rooms, pool: Pool, old: Member) -> bool:
        assert pool.route is not None, "a pool with rooms has a route"
        ledger = self._deciding.ledger
        ledger.add(old.held.given_back())
        fits = rooms.best(pool.route.shape.requests) is not None
        ledger.add(old.held)
        return fits


def _claim_on(pool: Pool, unmet: Iterable[Unmet]) -> str:
    """Whose waiting requests come before this pool: the same scaler's, or its machine pool's."""
    for each in unmet:
        waits_for = each.route.scaler
        if waits_for.name == pool.scaler.name:
            return f"jobs wait for scaler `{waits_for.name}`; they come first"
        shared = pool.scaler.machine_pool
        if shared is not None and waits_for.machine_pool == shared:
            return f"jobs wait for room in machine pool `{shared}`; they come first"
    return ""


def _set_aside(unmet: Iterable[Unmet], deciding: Deciding) -> None:
    """What waiting requests would take of the cluster's caps is not for pools."""
    held = deciding.ledger.cluster.held
    for each in unmet:
        need = each.route.shape.requests
        held.add(each.count, each.count * need.cpu_millis, each.count * need.memory_bytes)
