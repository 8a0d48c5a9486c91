"""Who gets an agent now: every waiting request against every cap, in one decision.

Oldest first within priority. A request that cannot be served delays none that can, with
one exception: one that has waited past the ageing bound has the room under the cap that
blocks it kept, so that a stream of small requests cannot starve a large one. Under a cap
room is kept for one request at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.resources import Shape
from kici_scaler.domain.routing import NoRoute, Route, RoutingTable, Wanted
from kici_scaler.domain.scalers import BackendType, LabelSet, Resources, Role, Scaler
from kici_scaler.domain.usage import Held, Ledger, Rooms


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
    held: Sequence[Held]
    machines: Sequence[MachineView]
    now: datetime
    restraints: Mapping[str, Restraint] = field(default_factory=dict)
    ageing: timedelta = timedelta(seconds=30)
    draining: bool = False

    def facts_of(self, machine_id: str | None) -> MachineFacts | None:
        """What is known of a machine."""
        return next((each.facts for each in self.machines if each.id == machine_id), None)


@dataclass(frozen=True, slots=True)
class Admit:
    """This request gets an agent of that label set on that machine (None for `event`)."""

    request: Waiting
    scaler: Scaler
    label_set: LabelSet
    machine_id: str | None
    shape: Shape


@dataclass(frozen=True, slots=True)
class Refuse:
    """This request gets nothing now, and why; `scaler` is '' when none could ever serve it."""

    request: Waiting
    code: WaitCode
    reason: str
    scaler: str = ""


Decision = Admit | Refuse


@dataclass(slots=True, eq=False)
class _Demand:
    """Requests that differ in nothing a decision looks at share one of these."""

    route: Route | None
    rooms: Rooms | None = None
    code: WaitCode = WaitCode.AT_CAPACITY
    reason: str = ""
    """Why these requests are refused, once one of them was."""
    scaler: str = ""


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


def decide(requests: Iterable[Waiting], situation: Situation) -> list[Decision]:
    """One decision for each request, in the order given (most urgent first)."""
    return _Pass(situation).decide(requests)


class _Pass:
    """One decision in the making: the ledger grows with every admission."""

    def __init__(self, situation: Situation) -> None:
        self._is = situation
        self._ledger = Ledger(situation.table.cluster, situation.held)
        self._oldest_young = situation.now - situation.ageing
        self._demands: dict[
            tuple[frozenset[str], frozenset[str], Role | None, Resources, bool], _Demand
        ] = {}
        self._rooms: dict[tuple[str, tuple[MachineFacts, ...]], Rooms | str] = {}
        restrained = any(each.unroutable for each in situation.restraints.values())
        self._refuse = self._unroutable if restrained else None

    def decide(self, requests: Iterable[Waiting]) -> list[Decision]:
        if self._is.draining:
            reason = "the cluster is draining: no new agents until `kici-scaler drain off`"
            return [Refuse(each, WaitCode.DRAINING, reason) for each in requests]
        return [self._one(request) for request in requests]

    def _one(self, request: Waiting) -> Decision:
        demand = self._demand(request)
        route = demand.route
        if route is None:
            return Refuse(request, demand.code, demand.reason, demand.scaler)
        need, rooms = route.shape.requests, demand.rooms
        assert rooms is not None, "whatever has a route has places, if full ones"
        # Usage only grows within a pass: whoever asks the same later meets the same answer.
        if not demand.reason:
            room = rooms.best(need)
            if room is not None:
                self._ledger.take(room, need)
                return Admit(request, route.scaler, route.label_set, room.machine_id, route.shape)
            demand.reason = rooms.shortage(need)
        if request.enqueued_at <= self._oldest_young and request.may_wait:
            rooms.keep(need)
        return Refuse(request, WaitCode.AT_CAPACITY, demand.reason, route.scaler.name)

    def _demand(self, request: Waiting) -> _Demand:
        key = (
            request.labels,
            request.exclude,
            request.role,
            request.declared,
            request.image is not None,
        )
        found = self._demands.get(key)
        if found is None:
            found = self._demands[key] = self._judge(request)
        return found

    def _judge(self, request: Waiting) -> _Demand:
        wanted = Wanted(
            request.labels,
            request.exclude,
            request.role,
            request.declared,
            own_image=request.image is not None,
        )
        route = self._is.table.route(wanted, self._refuse)
        if isinstance(route, NoRoute):
            return self._nowhere(route)
        name = route.scaler.name
        restraint = self._is.restraints.get(name)
        if restraint is not None:
            return _Demand(None, code=restraint.code, reason=restraint.reason, scaler=name)
        rooms = self._rooms_for(route)
        if isinstance(rooms, str):
            return _Demand(None, code=WaitCode.NO_MACHINE, reason=rooms, scaler=name)
        return _Demand(route, rooms)

    def _rooms_for(self, route: Route) -> Rooms | str:
        """Where this scaler may put an agent of that kind, or why nowhere."""
        key = (route.scaler.name, route.facts)
        found = self._rooms.get(key)
        if found is None:
            found = self._rooms[key] = self._look_for_rooms(route)
        return found

    def _look_for_rooms(self, route: Route) -> Rooms | str:
        if not route.scaler.type.is_local:
            return self._ledger.rooms(route.scaler, (None,))
        machines, why_none = _machines_for(route, self._is.machines)
        return self._ledger.rooms(route.scaler, machines) if machines else why_none

    def _unroutable(self, scaler: Scaler) -> str | None:
        restraint = self._is.restraints.get(scaler.name)
        return restraint.reason if restraint is not None and restraint.unroutable else None

    def _nowhere(self, route: NoRoute) -> _Demand:
        """Behind the first scaler that will take it again, so that its queue is looked at then."""
        restrained = [name for name in route.refused if name in self._is.restraints]
        if not restrained:
            return _Demand(None, code=WaitCode.NO_BACKEND, reason=route.summary)
        code = self._is.restraints[restrained[0]].code
        return _Demand(None, code=code, reason=route.summary, scaler=restrained[0])


def _machines_for(route: Route, machines: Sequence[MachineView]) -> tuple[tuple[str, ...], str]:
    """The machines that may take this route, in a stable order, or why there are none."""
    scaler = route.scaler
    mine = [
        each
        for each in machines
        if each.backend_type is scaler.type
        and (each.serves is None or scaler.name in each.serves)
        and (not route.facts or each.facts in route.facts)
    ]
    if not mine:
        return (), (
            f"no machine serves scaler `{scaler.name}`: start a worker with"
            f" `kici-scaler worker {scaler.type}`"
        )
    obstacles = {
        each.id: each.obstacle or (each.pool_obstacle if scaler.machine_pool else None)
        for each in mine
    }
    able = tuple(sorted(name for name, obstacle in obstacles.items() if obstacle is None))
    told = "; ".join(f"machine `{name}` {why}" for name, why in sorted(obstacles.items()) if why)
    return able, f"scaler `{scaler.name}`: {told}"
