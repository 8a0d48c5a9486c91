"""What is decided where caps are free: 500 jobs against 50 scalers of 4 label sets each."""

from __future__ import annotations

from datetime import UTC, datetime

from kici_scaler.domain.admission import Situation
from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.machines import MachineView
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.routing import RoutingTable
from kici_scaler.domain.scalers import (
    Amount,
    BackendType,
    Cap,
    Cluster,
    LabelSet,
    Resources,
    Scaler,
)

JOBS, SCALERS, LABEL_SETS = 500, 50, 4
FACTS = MachineFacts("linux", "x64")
GIBIBYTE = 1024**3


def cluster() -> Cluster:
    """Fifty capped scalers; a fifth of them gated; every label set with a shape of its own."""
    return Cluster(
        scalers=tuple(_scaler(number) for number in range(SCALERS)),
        global_max_agents=400,
        global_resource_cap=Cap(1_000_000, 4_096 * GIBIBYTE),
    )


def jobs() -> list[Waiting]:
    """Five hundred jobs that all differ; some above a cap, some that nothing serves."""
    return [_job(number) for number in range(JOBS)]


def situation() -> Situation:
    """Nothing is held yet; the routing table has been asked before."""
    configured = cluster()
    machines = [
        MachineView(f"machine-{number}", BackendType.CONTAINER, FACTS, serves=None)
        for number in range(2)
    ]
    return Situation(
        table=RoutingTable.build(configured, {each.name: (FACTS,) for each in configured.scalers}),
        held=(),
        machines=machines,
        now=datetime.now(UTC),
    )


def _scaler(number: int) -> Scaler:
    mandatory = frozenset({f"pool-{number}"}) if number % 5 == 0 else frozenset()
    return Scaler(
        name=f"scaler-{number}",
        type=BackendType.CONTAINER,
        max_agents=5,
        resource_cap=Cap(16_000, 64 * GIBIBYTE),
        label_sets=tuple(
            LabelSet(
                index=index,
                labels=("linux", f"pool-{number}", f"tool-{index}", f"zone-{number % 7}"),
                gate=mandatory,
                resources=_resources(1_000 + index, GIBIBYTE + number),
            )
            for index in range(LABEL_SETS)
        ),
    )


def _job(number: int) -> Waiting:
    labels = {"linux", f"tool-{number % LABEL_SETS}"}
    if number % 3 == 0:
        labels.add(f"pool-{number % SCALERS}")
    if number % 50 == 0:
        labels.add(f"unknown-{number}")
    return Waiting(
        job_id=f"job-{number}",
        run_id="run",
        labels=frozenset(labels),
        exclude=frozenset({f"zone-{number % 7}"}) if number % 4 == 0 else frozenset(),
        declared=_resources(500 + number, None) if number % 2 else Resources(),
        enqueued_at=datetime.now(UTC),
    )


def _resources(cpu_millis: int, memory_bytes: int | None) -> Resources:
    amount = Amount(cpu_millis, memory_bytes)
    return Resources(amount, amount)
