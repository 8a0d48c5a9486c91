"""Who gets an agent now: every waiting request against every cap, in one decision.

Oldest first within priority. A request that cannot be served delays none that can, with
one exception: one that has waited past the ageing bound sets room aside under the cap
that blocks it, so that a stream of small requests cannot starve a large one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.resources import Need, Shape
from kici_scaler.domain.routing import NoRoute, Route, RoutingTable, Wanted
from kici_scaler.domain.scalers import BackendType, LabelSet, Resources, Role, Scaler
from kici_scaler.domain.usage import Blocked, Held, Ledger


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
    restraints: Mapping[str, Restraint] = field(default_factory=dict)
    now: datetime = datetime.min
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


@dataclass(frozen=True, slots=True)
class _Demand:
    """Requests that differ in nothing a decision looks at share one of these."""

    route: Route | None
    code: WaitCode = WaitCode.NO_BACKEND
    reason: str = ""
    machines: tuple[str | None, ...] = ()
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
        self._cluster = situation.table.cluster
        self._ledger = Ledger(situation.held)
        self._oldest_young = situation.now - situation.ageing
        self._demands: dict[
            tuple[frozenset[str], frozenset[str], Role | None, Resources, bool], _Demand
        ] = {}
        self._refused: dict[int, tuple[WaitCode, str]] = {}
        self._set_aside: set[str] = set()

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
        known = self._refused.get(id(demand))
        if known is not None:
            return Refuse(request, known[0], known[1], route.scaler.name)
        machine, blocked = self._place(demand, route, route.shape.requests)
        if blocked is None:
            self._ledger.take(route.scaler, machine, route.shape.requests)
            return Admit(request, route.scaler, route.label_set, machine, route.shape)
        refusal = (WaitCode.AT_CAPACITY, blocked.reason)
        if request.enqueued_at <= self._oldest_young and blocked.by not in self._set_aside:
            self._keep_room(demand, route, blocked)
        # Usage only grows within a pass: whoever asks the same later meets the same answer.
        self._refused[id(demand)] = refusal
        return Refuse(request, *refusal, route.scaler.name)

    def _keep_room(self, demand: _Demand, route: Route, blocked: Blocked) -> None:
        machine = min(demand.machines, key=self._load)
        self._ledger.set_aside(route.scaler, machine, route.shape.requests, blocked)

    def _load(self, machine_id: str | None) -> tuple[int, str]:
        return self._ledger.machines[machine_id], machine_id or ""

    def _place(
        self, demand: _Demand, route: Route, need: Need
    ) -> tuple[str | None, Blocked | None]:
        """The least loaded machine with room, or the cap in the way."""
        blocked = self._ledger.blocked_in_cluster(self._cluster, need)
        if blocked is not None:
            return None, blocked
        best: str | None = None
        best_load: tuple[int, str] | None = None
        for machine in demand.machines:
            load = self._load(machine)
            if best_load is not None and load >= best_load:
                continue
            here = self._ledger.blocked_at(self._cluster, route.scaler, machine, need)
            if here is None:
                best, best_load = machine, load
            elif blocked is None:
                blocked = here
        return (best, None) if best_load is not None else (None, blocked)

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
        route = self._is.table.route(wanted, self._unroutable)
        if isinstance(route, NoRoute):
            return self._nowhere(route)
        restraint = self._is.restraints.get(route.scaler.name)
        if restraint is not None:
            return _Demand(None, restraint.code, restraint.reason, scaler=route.scaler.name)
        if not route.scaler.type.is_local:
            return _Demand(route, machines=(None,))
        machines, why_none = _machines_for(route, self._is.machines)
        if not machines:
            return _Demand(None, WaitCode.NO_MACHINE, why_none, scaler=route.scaler.name)
        return _Demand(route, machines=machines)

    def _unroutable(self, scaler: Scaler) -> str | None:
        restraint = self._is.restraints.get(scaler.name)
        return restraint.reason if restraint is not None and restraint.unroutable else None

    def _nowhere(self, route: NoRoute) -> _Demand:
        codes = {
            self._is.restraints[name].code for name in route.refused if name in self._is.restraints
        }
        code = WaitCode.PAUSED if WaitCode.PAUSED in codes else WaitCode.NO_BACKEND
        return _Demand(None, code, route.summary)


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
