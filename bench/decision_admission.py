"""What is decided where everything is contended: full caps, pools, ageing, reasons.

500 requests that all differ, against 50 scalers of 4 label sets on machines with pools, most of
it full, some of it paused or backing off.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kici_scaler.domain.admission import (
    Restraint,
    Situation,
    backoff_restraint,
)
from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.limits import Held
from kici_scaler.domain.machines import MachineView
from kici_scaler.domain.request import WaitCode, Waiting
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

REQUESTS, SCALERS, LABEL_SETS, POOLS = 500, 50, 4, 5
MACHINES = (1, 2, 8)
GIB = 1024**3
NOW = datetime(2025, 6, 1, tzinfo=UTC)
FACTS = MachineFacts("linux", "x64")


def _cluster() -> Cluster:
    return Cluster(
        scalers=tuple(_scaler(number) for number in range(SCALERS)),
        global_max_agents=5_000,
        global_resource_cap=Cap(20_000_000, 100_000 * GIB),
        machine_pools=tuple(
            MachinePool(f"pool-{number}", Cap(64_000, 256 * GIB)) for number in range(POOLS)
        ),
    )


def _scaler(number: int) -> Scaler:
    return Scaler(
        name=f"scaler-{number}",
        type=BackendType.EVENT if number % 5 == 0 else BackendType.CONTAINER,
        max_agents=10,
        resource_cap=Cap(32_000, 64 * GIB),
        machine_pool=None if number % 5 == 0 else f"pool-{number % POOLS}",
        label_sets=tuple(
            LabelSet(index, ("linux", f"own-{number}", f"tool-{index}", f"zone-{number % 7}"))
            for index in range(LABEL_SETS)
        ),
    )


def requests() -> list[Waiting]:
    """Five hundred that differ; one of 25 asks for what nobody offers."""
    found = []
    for number in range(REQUESTS):
        amount = Amount(1_000 + number, GIB + number)
        labels = {"linux", f"own-{number % SCALERS}", f"tool-{number % LABEL_SETS}"}
        if number % 25 == 0:
            labels.add(f"nobody-offers-{number}")
        found.append(
            Waiting(
                job_id=f"job-{number}",
                run_id="run",
                labels=frozenset(labels),
                declared=Resources(amount, amount),
                enqueued_at=NOW - timedelta(seconds=number % 60),
            )
        )
    return found


def _held(machines: int) -> list[Held]:
    """Three machines of four are full for every local scaler, and half the `event` ones are."""
    found = []
    for number in range(SCALERS):
        name = f"scaler-{number}"
        if number % 5 == 0:
            found.append(Held(name, None, None, 10 if number % 2 else 3, 9_000, 9 * GIB))
            continue
        for place in range(machines):
            count = 10 if (number + place) % 4 else 8
            pool = f"pool-{number % POOLS}"
            found.append(Held(name, f"machine-{place}", pool, count, 3_000, 3 * GIB))
    return found


def _situation(table: RoutingTable, machines: int) -> Situation:
    restraints = {
        "scaler-3": Restraint(WaitCode.PAUSED, "scaler `scaler-3` is paused", unroutable=True),
        "scaler-7": backoff_restraint("scaler-7", 12.5, 2, 5),
    }
    return Situation(
        table=table,
        held=_held(machines),
        machines=[
            MachineView(f"machine-{number}", BackendType.CONTAINER, FACTS, serves=None)
            for number in range(machines)
        ],
        now=NOW,
        restraints=restraints,
    )


def situation(machines: int) -> Situation:
    """Most of it full, some of it paused or backing off."""
    configured = _cluster()
    facts = {each.name: (FACTS,) for each in configured.scalers if each.type.is_local}
    return _situation(RoutingTable.build(configured, facts), machines)
