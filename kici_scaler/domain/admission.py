"""Who gets an agent now: every waiting request against every cap, in one decision.

Oldest first within priority. A request that cannot be served delays none that can, with
one exception: one that has waited past the ageing bound has the room under the cap that
blocks it kept, so that a stream of small requests cannot starve a large one. Under a cap
room is kept for one request at a time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from kici_scaler.domain.demand import Demand
from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.limits import Held
from kici_scaler.domain.machines import MachineView, capacities, machines_for
from kici_scaler.domain.prespawned import Ready, Stock, Taken
from kici_scaler.domain.request import Kind, WaitCode, Waiting
from kici_scaler.domain.resources import Need, Shape
from kici_scaler.domain.routing import NoRoute, Route, RoutingTable, Wanted, refusing
from kici_scaler.domain.scalers import LabelSet, Scaler
from kici_scaler.domain.static_agents import Offer, StaticAgent, StaticStock
from kici_scaler.domain.usage import Ledger, Room, Rooms


@dataclass(frozen=True, slots=True)
class Restraint:
    """Why a scaler takes nothing at the moment, whatever the caps say."""

    code: WaitCode
    reason: str
    unroutable: bool = False
    """True where other label sets should be tried instead (paused, retiring)."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything a decision depends on besides the requests."""

    table: RoutingTable
    held: Iterable[Held]
    """Gone through once somebody asks for room, and not before."""
    machines: Sequence[MachineView]
    now: datetime
    restraints: Mapping[str, Restraint] = field(default_factory=dict)
    probes: Mapping[str, int] = field(default_factory=dict)
    """Starts left to scalers that failed last and have to prove themselves first."""
    ageing: timedelta = timedelta(seconds=30)
    draining: bool = False
    held_back: bool = False
    """The database failed over, and nobody has said yet that things may go on."""
    ready: Sequence[Ready] = ()
    """Agents that were started ahead of demand and may be given a job at once."""
    static: Sequence[StaticAgent] = ()
    """Connected agents that no scaler made, free ones and others."""

    def facts_of(self, scaler: Scaler, machine_id: str | None) -> MachineFacts | None:
        """What is known of a machine that runs agents of that scaler."""
        found = (each for each in self.machines if each.id == machine_id and each.is_for(scaler))
        return next((each.facts_for(scaler) for each in found), None)


class Admit(NamedTuple):
    """This request gets an agent of that label set on that machine (None for `event`)."""

    request: Waiting
    scaler: Scaler
    label_set: LabelSet
    machine_id: str | None
    shape: Shape


@dataclass(frozen=True, slots=True)
class Bind:
    """This request gets an agent that is connected already."""

    request: Waiting
    agent: Taken


class Refuse(NamedTuple):
    """This request gets nothing now, and why; `scaler` is '' when none could ever serve it."""

    request: Waiting
    code: WaitCode
    reason: str
    scaler: str = ""


Decision = Admit | Bind | Offer | Refuse


@dataclass(frozen=True, slots=True)
class Unmet:
    """Requests of one kind that a decision left waiting behind the scaler of `route`."""

    wanted: Wanted
    route: Route
    rooms: Rooms | None
    """Where there was no room for them; None when something else is in the way."""
    count: int
    aged: int
    """How many of them have waited past the ageing bound."""


HELD_BACK = (
    "the database failed over to another server or timeline: no new agents until every machine"
    " was listed and agrees with the rows, or `kici-scaler resume`"
)
"""What is told while what rows say may be older than what exists."""


def backoff_restraint(scaler: str, seconds_left: float, streak: int, limit: int) -> Restraint:
    """What a request is told while a scaler recovers from failures."""
    seconds = math.ceil(seconds_left)
    reason = f"scaler `{scaler}` backs off for another {seconds} s after a failed start"
    if streak >= limit:
        reason = (
            f"scaler `{scaler}` backs off for another {seconds} s after {streak} failed starts"
            " in a row: look at what provisions its machines"
        )
    return Restraint(WaitCode.BACKOFF, reason)


def after_the_probe(scaler: str) -> str:
    """What is told while a scaler that failed last proves itself with one start."""
    return f"scaler `{scaler}` failed last: one start has to succeed before it takes more"


def decide(requests: Iterable[Waiting], situation: Situation) -> list[Decision]:
    """One decision for each request, in the order given (most urgent first)."""
    return Deciding(situation).decide(requests)


class Deciding:
    """One decision in the making: the ledger grows with every admission."""

    def __init__(self, situation: Situation) -> None:
        self._is = situation
        self._stock = Stock(situation.ready) if situation.ready else None
        self._static = StaticStock(situation.static) if situation.static else None
        self._oldest_young = situation.now - situation.ageing
        self._demands: dict[Kind, Demand] = {}
        self._rooms: defaultdict[str, list[tuple[tuple[MachineFacts, ...], Rooms | str]]]
        self._rooms = defaultdict(list)
        restraints = situation.restraints
        self._closed = {name: each.reason for name, each in restraints.items() if each.unroutable}
        self._refuse_scaler = refusing(self._closed) if self._closed else None
        self._probes = dict(situation.probes)

    @cached_property
    def ledger(self) -> Ledger:
        """What is held against every cap, and given out by this decision."""
        cluster = self._is.table.cluster
        return Ledger(cluster, self._is.held, capacities(cluster, self._is.machines))

    def decide(self, requests: Iterable[Waiting]) -> list[Decision]:
        """One decision for each request, in the order given."""
        if self._is.held_back:
            return [Refuse(each, WaitCode.PAUSED, HELD_BACK) for each in requests]
        if self._is.draining:
            reason = "the cluster is draining: no new agents until `kici-scaler drain off`"
            return [Refuse(each, WaitCode.DRAINING, reason) for each in requests]
        return [self._one(request) for request in requests]

    def unmet(self) -> list[Unmet]:
        """Who was left waiting behind a scaler, the most urgent first."""
        return [
            Unmet(each.wanted, each.route, each.rooms, each.refused, each.aged)
            for each in self._demands.values()
            if each.refused and each.route is not None
        ]

    def may_start(self, scaler: str) -> bool:
        """Whether this scaler, should it have failed last, has a start left to prove itself."""
        return self._probes.get(scaler) != 0

    def start(self, scaler: str, room: Room, need: Need) -> None:
        """Count one more agent of this scaler there."""
        self.ledger.take(room, need)
        if scaler in self._probes:
            self._probes[scaler] -= 1

    def _one(self, request: Waiting) -> Decision:
        demand = self._demand(request)
        if demand.static is not None and (agent_id := demand.static.take()) is not None:
            return Offer(request, agent_id)
        if demand.supply is not None and (taken := demand.supply.take()) is not None:
            return Bind(request, taken)
        # Usage only grows within a pass: whoever asks the same later meets the same answer.
        if not demand.reason and (admitted := self._admit(request, demand)) is not None:
            return admitted
        return self._refuse(request, demand)

    def _admit(self, request: Waiting, demand: Demand) -> Admit | None:
        """A new agent for it; where none may start, `demand` says why."""
        route = demand.route
        rooms = None if route is None else demand.rooms or self._place(demand, route)
        if route is None or rooms is None:
            return None
        name, need = route.scaler.name, route.shape.requests
        if not self.may_start(name):
            demand.shut(WaitCode.BACKOFF, after_the_probe(name))
            return None
        room = rooms.best(need)
        if room is None:
            demand.reason = rooms.shortage(need)
            return None
        self.start(name, room, need)
        return Admit(request, route.scaler, route.label_set, room.machine_id, route.shape)

    def _refuse(self, request: Waiting, demand: Demand) -> Decision:
        """No agent is started for it; one that serves it although meant for others may."""
        if demand.supply is not None and (taken := demand.supply.take_other()) is not None:
            return Bind(request, taken)
        if request.may_wait:
            demand.refused += 1
            if request.enqueued_at <= self._oldest_young:
                demand.aged += 1
                if demand.route is not None and demand.rooms is not None:
                    demand.rooms.keep(demand.route.shape.requests)
        return Refuse(request, demand.code, demand.reason, demand.scaler)

    def _demand(self, request: Waiting) -> Demand:
        kind = request.kind
        found = self._demands.get(kind)
        if found is None:
            found = self._demands[kind] = self._judge(request, kind)
        return found

    def _judge(self, request: Waiting, kind: Kind) -> Demand:
        table, refuse = self._is.table, self._refuse_scaler
        route = table.known(kind, refuse) or table.route(Wanted.by(request), refuse)
        demand = (
            self._nowhere(request, route)
            if isinstance(route, NoRoute)
            else Demand(request, route, route.scaler.name)
        )
        if self._stock is not None:
            demand.supply = self._stock.supply(demand.wanted, demand.route, self._closed)
        if self._static is not None:
            demand.static = self._static.supply(demand.wanted)
            if demand.static is not None and demand.code is WaitCode.NO_BACKEND:
                demand.code, demand.reason = WaitCode.AT_CAPACITY, demand.static.why_not
        return demand

    def _place(self, demand: Demand, route: Route) -> Rooms | None:
        """Where its scaler may put an agent; where nowhere, `demand` says why."""
        restraint = self._is.restraints.get(route.scaler.name)
        if restraint is not None:
            demand.shut(restraint.code, restraint.reason)
            return None
        rooms = self.rooms_for(route)
        if isinstance(rooms, str):
            demand.shut(WaitCode.NO_MACHINE, rooms)
            return None
        demand.rooms = rooms
        return rooms

    def rooms_for(self, route: Route) -> Rooms | str:
        """Where this scaler may put an agent of that kind, or why nowhere."""
        places = self._rooms[route.scaler.name]
        for facts, rooms in places:
            if facts == route.facts:
                return rooms
        found = self._look_for_rooms(route)
        places.append((route.facts, found))
        return found

    def _look_for_rooms(self, route: Route) -> Rooms | str:
        if not route.scaler.type.is_local:
            return self.ledger.rooms(route.scaler, (None,))
        machines, why_none = machines_for(route.scaler, route.facts, self._is.machines)
        return self.ledger.rooms(route.scaler, machines) if machines else why_none

    def _nowhere(self, first: Waiting, route: NoRoute) -> Demand:
        """Behind the first scaler that will take it again, so that its queue is looked at then."""
        restrained = [name for name in route.refused if name in self._is.restraints]
        if not restrained:
            return Demand(first, code=WaitCode.NO_BACKEND, reason=route.summary)
        code = self._is.restraints[restrained[0]].code
        return Demand(first, code=code, reason=route.summary, scaler=restrained[0])
