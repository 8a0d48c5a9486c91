"""How long the pure decision takes: 500 jobs against 50 scalers of 4 label sets each.

Times are of the processor, as nothing here waits: a busy machine does not change them. Run by
itself it prints JSON: `python -m bench.decision`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime

from kici_scaler.domain.admission import Admit, MachineView, Refuse, Situation, decide
from kici_scaler.domain.labels import MachineFacts
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

JOBS, SCALERS, LABEL_SETS, ROUNDS = 500, 50, 4, 200
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


def decision(repeats: int = ROUNDS) -> dict[str, object]:
    """Milliseconds of one whole decision: asked before, and asked of a table just built."""
    configured, waiting = cluster(), jobs()
    facts = {scaler.name: (FACTS,) for scaler in configured.scalers}

    def table() -> RoutingTable:
        return RoutingTable.build(configured, facts)

    warm = table()
    decided = decide(waiting, _situation(warm))
    return {
        "jobs": JOBS,
        "scalers": SCALERS,
        "label_sets": SCALERS * LABEL_SETS,
        "admitted": sum(isinstance(each, Admit) for each in decided),
        "refused_with_reason": sum(
            isinstance(each, Refuse) and bool(each.reason) for each in decided
        ),
        "warm_ms": _timed(lambda: warm, lambda known: decide(waiting, _situation(known)), repeats),
        "cold_ms": _timed(table, lambda new: decide(waiting, _situation(new)), repeats),
        "build_ms": _timed(lambda: warm, lambda _: table(), repeats),
    }


def _timed(
    prepare: Callable[[], RoutingTable], work: Callable[[RoutingTable], object], repeats: int
) -> dict[str, float]:
    taken = []
    for _ in range(repeats):
        prepared = prepare()
        begun = time.process_time()
        work(prepared)
        taken.append((time.process_time() - begun) * 1000)
    percentiles = statistics.quantiles(taken, n=100)
    return {
        "least": round(min(taken), 3),
        "p50": round(percentiles[49], 3),
        "p99": round(percentiles[98], 3),
    }


def _situation(table: RoutingTable) -> Situation:
    machines = [
        MachineView(f"machine-{number}", BackendType.CONTAINER, FACTS, serves=None)
        for number in range(2)
    ]
    return Situation(table=table, held=(), machines=machines, now=datetime.now(UTC))


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


if __name__ == "__main__":
    print(json.dumps(decision(), indent=2))
