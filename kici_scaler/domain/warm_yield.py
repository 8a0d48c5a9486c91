"""Which agents of warm pools make room for jobs that wait, and never in vain.

An agent is given up only when what it holds, with what ends already, lets a waiting
request start. One that the request could be given itself is never given up for it: what
is connected was given to it, and what still comes will be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kici_scaler.domain.admission import Admit, Unmet
from kici_scaler.domain.limits import Held, Limit
from kici_scaler.domain.prespawned import can_prespawned_serve
from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import Cap, Cluster
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.domain.usage import Ledger, Room, Rooms
from kici_scaler.domain.warm import IN_FLIGHT, Member

MOST_CONSIDERED = 50
"""Kinds of waiting requests looked at in one pass, so that a long queue costs no more."""
_ORDER = {
    SpawnState.RESERVED: 0,
    SpawnState.IDLE: 1,
    SpawnState.BOOTING: 2,
    SpawnState.SPAWNING: 3,
}
"""Who goes first: what does not exist yet, then what idles, then what is being made."""


@dataclass(frozen=True, slots=True)
class Yielded:
    """An agent that makes room for requests behind a scaler."""

    member: Member
    scaler: str


def ledger_once_ended(
    cluster: Cluster,
    held: Iterable[Held],
    admitted: Iterable[Admit],
    ending: Iterable[Held],
    capacities: Mapping[str, Cap] | None = None,
) -> Ledger:
    """What will be held once everything that is ending now is gone."""
    ledger = Ledger(cluster, held, capacities)
    for each in admitted:
        ledger.take(ledger.room(each.scaler, each.machine_id), each.shape.requests)
    for gone in ending:
        ledger.add(gone.given_back())
    return ledger


def yields(unmet: Sequence[Unmet], members: Iterable[Member], ledger: Ledger) -> list[Yielded]:
    """Who makes room, for the most urgent requests first.

    Args:
        ledger: what will be held once everything that is ending is gone; it is used up.
    """
    return _Yielding(members, ledger).all(unmet[:MOST_CONSIDERED])


class _Yielding:
    def __init__(self, members: Iterable[Member], ledger: Ledger) -> None:
        self._ledger = ledger
        self._free = sorted(
            (each for each in members if _may_yield(each)),
            key=lambda each: (_ORDER[each.state], -each.idle_seconds, each.agent_id),
        )
        self._used: list[Limit] = [ledger.cluster]
        """What those who are helped are counted against."""

    def all(self, unmet: Iterable[Unmet]) -> list[Yielded]:
        """Who yields, the most urgent requests first."""
        found: list[Yielded] = []
        for each in unmet:
            if each.rooms is not None:
                rooms = self._ledger.rooms(each.route.scaler, each.rooms.machines)
                found += self._for(each, rooms)
        return self._not_in_vain(found)

    def _not_in_vain(self, found: Iterable[Yielded]) -> list[Yielded]:
        """Without those who may stay after all, as what went for later requests is enough."""
        needed = []
        for each in found:
            held = each.member.held
            self._ledger.add(held)
            if any(limit.is_exceeded and limit.concerns(held) for limit in self._used):
                self._ledger.add(held.given_back())
                needed.append(each)
        return needed

    def _for(self, unmet: Unmet, rooms: Rooms) -> list[Yielded]:
        """Who yields to requests of one kind, until one of them is beyond help."""
        found: list[Yielded] = []
        need, scaler = unmet.route.shape.requests, unmet.route.scaler.name
        for _ in range(unmet.count):
            if self._is_coming(unmet):
                continue
            chosen = self._fewest(unmet, rooms, need)
            if chosen is None:
                if unmet.aged:
                    rooms.keep(need)
                break
            room, members = chosen
            for member in members:
                self._ledger.add(member.held.given_back())
                self._free.remove(member)
                found.append(Yielded(member, scaler))
            self._ledger.take(room, need)
            self._used += room.limits
        return found

    def _is_coming(self, unmet: Unmet) -> bool:
        """Whether an agent that still starts will be given to such a request."""
        for member in self._free:
            if member.state in IN_FLIGHT and _fits(member, unmet):
                self._free.remove(member)
                return True
        return False

    def _fewest(
        self, unmet: Unmet, rooms: Rooms, need: Need
    ) -> tuple[Room, Sequence[Member]] | None:
        """The place where the fewest have to go, and who; None when no place can be had."""
        free_already = rooms.best(need)
        if free_already is not None:
            return free_already, ()
        able = [each for each in self._free if not _fits(each, unmet)]
        found = [(room, who) for room in rooms if (who := self._enough(room, need, able))]
        return min(found, key=lambda each: len(each[1])) if found else None

    def _enough(self, room: Room, need: Need, able: Iterable[Member]) -> list[Member]:
        """Agents whose going makes room there, none of them needlessly; empty when none can."""
        limits = (self._ledger.cluster, *room.limits)
        chosen: list[Member] = []
        for member in able:
            short = [limit for limit in limits if not limit.has_room(need)]
            if not short or any(limit.is_kept for limit in short):
                break
            if any(_helps(limit, need, member.held) for limit in short):
                self._ledger.add(member.held.given_back())
                chosen.append(member)
        is_enough = _fits_under(limits, need)
        for member in tuple(chosen):
            self._ledger.add(member.held)
            if is_enough and _fits_under(limits, need):
                chosen.remove(member)
            elif is_enough:
                self._ledger.add(member.held.given_back())
        if not is_enough:
            return []
        for member in chosen:
            self._ledger.add(member.held)
        return chosen


def _may_yield(member: Member) -> bool:
    """What an absent agent is worth is not known; what is ending is counted as gone already."""
    return member.state in _ORDER and (member.is_present or member.state in IN_FLIGHT)


def _fits(member: Member, unmet: Unmet) -> bool:
    return can_prespawned_serve(member.like, unmet.wanted)


def _fits_under(limits: Iterable[Limit], need: Need) -> bool:
    return all(limit.has_room(need) for limit in limits)


def _helps(limit: Limit, need: Need, held: Held) -> bool:
    """Whether a limit lacks something that these hold."""
    if not limit.concerns(held):
        return False
    given = (held.count, held.cpu_millis, held.memory_bytes)
    return any(lack and give for lack, give in zip(limit.lacking(need), given, strict=True))
