"""MicroVMs: from the order to the guest's first sign of life, and how long taking it away takes.

Real ones, where `KICI_TEST_FIRECRACKER` names a folder with `firecracker`, `jailer` and a guest
(`make e2e-firecracker` leaves one in build/firecracker), by root; otherwise there are no figures,
and it is said so.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Distribution, Unit
from bench.results import Measured
from tests.conformance.harness import soon
from tests.support.firecracker import REAL, FirecrackerHarness, network_with_exit, opened_harness
from tests.support.net_namespace import why_not
from workers.contract import LifecycleEvent

REPEATS = 30


def figures() -> Iterator[Measured]:
    """Boot and end of one microVM at a time, with the time of each step."""
    reason = why_not() or ("" if REAL else "KICI_TEST_FIRECRACKER names no folder")
    if reason:
        print(f"microvms: not measured: {reason}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="kici-bench-") as folder, network_with_exit():
        Path(folder).chmod(0o711)
        harness = opened_harness(Path(folder))
        try:
            yield from _lives(harness)
        finally:
            harness.close()


def _lives(harness: FirecrackerHarness) -> Iterator[Measured]:
    booted, networked, ended = [], [], []
    for _ in range(REPEATS):
        boot, network, end = _life(harness)
        booted.append(boot)
        networked.append(network)
        ended.append(end)
    for name, what, samples in (
        ("microVM, boot", "from the order to the guest's first word on its console", booted),
        ("microVM, network", "of that: its address, interface and rules", networked),
        ("microVM, end", "from the order to destroy it until nothing is left", ended),
    ):
        yield Measured(name, what, Unit.SECONDS, Distribution.of(samples))


def _life(harness: FirecrackerHarness) -> tuple[float, float, float]:
    """Seconds to boot, of them for its network, and to end."""
    backend, agent_id = harness.open(), harness.new_agent_id()
    steps: list[tuple[str, float]] = []

    def told(event: LifecycleEvent) -> None:
        steps.append((event.kind.value, time.perf_counter()))

    order = harness.order(agent_id, report=told)
    began = time.perf_counter()
    backend.spawn(order, soon())
    while not backend.logs(harness.ref(agent_id, 1), 1, soon()):
        time.sleep(0.001)
    booted = time.perf_counter()
    backend.destroy(harness.ref(agent_id, 2), soon())
    ended = time.perf_counter()
    at = dict(steps)
    network = at["scaler.network"] - at["scaler.provisioning"]
    return booted - began, network, ended - booted
