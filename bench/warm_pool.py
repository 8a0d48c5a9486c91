"""A warm pool whose agents a figure plays itself: reserved and started, and none connected yet."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml

from bench.place import KIND, MACHINE, MOST, Place
from kici_scaler.scalers_file import load
from kici_scaler.service import destroy, fill, reload, start
from kici_scaler.service.reload import Candidate
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.start import StartOrder

LABELS = ("linux", "pool-0")


def started(place: Place, size: int) -> list[StartOrder]:
    """Have a pool of that size reserved, and take what was reserved as its backend worker would."""
    runtime = Runtime(place.engine, "bench")
    _configure(runtime, size)
    orders: list[StartOrder] = []
    while len(orders) < size:
        fill.fill(runtime)
        orders += _start(runtime, size - len(orders))
    place.vacuum()
    return orders


def tend(place: Place) -> list[StartOrder]:
    """What its backend worker would do now: tear down what has ended, start what was reserved.

    Returns what was started.
    """
    runtime = Runtime(place.engine, "bench")
    ended, _ = destroy.take(runtime, backend_type=KIND, machine_id=MACHINE, most=MOST)
    for order in ended:
        destroy.confirm(runtime, order)
    return _start(runtime, MOST)


def _start(runtime: Runtime, most: int) -> list[StartOrder]:
    taken, _ = start.take(runtime, backend_type=KIND, machine_id=MACHINE, most=most)
    for order in taken:
        start.record_created(runtime, order, {"pid": "1"}, ())
    return taken


def _configure(runtime: Runtime, size: int) -> None:
    with tempfile.TemporaryDirectory(prefix="kici-bench-") as folder:
        file = Path(folder) / "scalers.yaml"
        file.write_text(yaml.safe_dump(_document(size)))
        reload.apply(runtime, Candidate.of(load(file), "bench"), author="bench")


def _document(size: int) -> dict[str, object]:
    label_set = {
        "labels": list(LABELS),
        "binaryPath": "builtin:agent",
        "resources": {"cpus": 1, "memory": "256m"},
    }
    scaler = {
        "name": "pool-0",
        "type": KIND,
        "maxAgents": MOST,
        "maxConcurrentSpawns": MOST,
        "warmPool": {"enabled": True, "size": size},
        "labelSets": [label_set],
    }
    return {"version": 1, "globalMaxAgents": MOST, "scalers": [scaler]}
