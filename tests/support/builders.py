"""Domain objects with everything left out that a test does not speak of."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from kici_scaler.domain.admission import (
    Admit,
    Decision,
    Refuse,
    Restraint,
    Situation,
    decide,
)
from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.limits import Held
from kici_scaler.domain.machines import MachineView
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.routing import RoutingTable
from kici_scaler.domain.scalers import (
    Amount,
    BackendType,
    Cap,
    Cluster,
    LabelSet,
    MachinePool,
    Resources,
    Scaler,
)

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
LINUX = MachineFacts("linux", "x64")
GIB = 1024**3

_jobs = itertools.count(1)


def resources(cpus: float | None = None, gib: float | None = None) -> Resources:
    """The same for requests and limits; None leaves a side open."""
    amount = Amount(
        None if cpus is None else round(cpus * 1000), None if gib is None else round(gib * GIB)
    )
    return Resources(amount, amount)


def cap(cpus: float | None = None, gib: float | None = None) -> Cap:
    """A cap; None is unlimited."""
    amount = resources(cpus, gib).requests
    return Cap(amount.cpu_millis, amount.memory_bytes)


def scaler(
    name: str,
    *labels: str,
    type: BackendType = BackendType.BARE_METAL,
    max_agents: int = 1000,
    resource_cap: Cap | None = None,
    pool: str | None = None,
    label_sets: Iterable[Sequence[str]] = (),
    gate: Iterable[str] = (),
) -> Scaler:
    """A scaler with one label set (`labels`, or its own name), or with several."""
    sets = [tuple(each) for each in label_sets] or [labels or (name,)]
    return Scaler(
        name=name,
        type=type,
        max_agents=max_agents,
        resource_cap=resource_cap or Cap(),
        machine_pool=pool,
        label_sets=tuple(
            LabelSet(index=index, labels=each, gate=frozenset(gate))
            for index, each in enumerate(sets)
        ),
        provisioning_targets=("https://example.test/hook",) if type is BackendType.EVENT else (),
    )


def cluster(
    *scalers: Scaler,
    global_max_agents: int = 1000,
    global_cap: Cap | None = None,
    pools: Mapping[str, Cap] | None = None,
) -> Cluster:
    """A configuration of these scalers; uncapped unless told otherwise."""
    return Cluster(
        scalers=scalers,
        global_max_agents=global_max_agents,
        global_resource_cap=global_cap or Cap(),
        machine_pools=tuple(MachinePool(name, cap) for name, cap in (pools or {}).items()),
    )


def machine(
    name: str = "m1",
    *,
    type: BackendType = BackendType.BARE_METAL,
    facts: MachineFacts | None = LINUX,
    serves: Iterable[str] | None = None,
    obstacle: str | None = None,
    pool_obstacle: str | None = None,
) -> MachineView:
    """A machine that is up, unless an obstacle is given."""
    served = None if serves is None else frozenset(serves)
    return MachineView(name, type, facts, served, obstacle, pool_obstacle)


def held(
    scaler_name: str,
    machine_id: str | None = "m1",
    *,
    count: int = 1,
    cpus: float = 0,
    gib: float = 0,
    pool: str | None = None,
) -> Held:
    """What live spawns hold, in all."""
    return Held(scaler_name, machine_id, pool, count, round(cpus * 1000), round(gib * GIB))


def waiting(
    *labels: str,
    job: str | None = None,
    age: float = 0.0,
    cpus: float | None = None,
    gib: float | None = None,
    priority: int = 0,
    exclude: Iterable[str] = (),
    image: str | None = None,
    may_wait: bool = True,
) -> Waiting:
    """A request that has waited `age` seconds by NOW."""
    return Waiting(
        job_id=job or f"job-{next(_jobs)}",
        run_id="run",
        labels=frozenset(labels),
        exclude=frozenset(exclude),
        declared=resources(cpus, gib),
        image=image,
        priority=priority,
        enqueued_at=NOW - timedelta(seconds=age),
        may_wait=may_wait,
    )


def situation(
    configured: Cluster,
    *,
    machines: Sequence[MachineView] = (machine(),),
    holding: Sequence[Held] = (),
    restraints: Mapping[str, Restraint] | None = None,
    ageing: float = 30.0,
    draining: bool = False,
) -> Situation:
    """A moment at NOW, with the routing table that belongs to these machines."""
    kinds: dict[str, list[MachineFacts]] = {}
    for each in configured.scalers:
        for view in machines:
            if view.backend_type is each.type and view.facts is not None:
                kinds.setdefault(each.name, []).append(view.facts)
    return Situation(
        table=RoutingTable.build(configured, kinds),
        held=holding,
        machines=machines,
        restraints=restraints or {},
        now=NOW,
        ageing=timedelta(seconds=ageing),
        draining=draining,
    )


def admitted(decisions: Iterable[Decision]) -> list[Admit]:
    """The admissions among decisions."""
    return [each for each in decisions if isinstance(each, Admit)]


def refused(decisions: Iterable[Decision]) -> list[Refuse]:
    """The refusals among decisions."""
    return [each for each in decisions if isinstance(each, Refuse)]


def decide_one(request: Waiting, moment: Situation) -> Decision:
    """What one request alone is told."""
    (decision,) = decide([request], moment)
    return decision
