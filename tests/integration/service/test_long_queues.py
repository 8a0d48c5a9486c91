"""A queue longer than one pass looks at: what cannot be served hides none that can."""

from __future__ import annotations

from pathlib import Path

import pytest

from kici_scaler.service import admit
from kici_scaler.service.runtime import Runtime
from tests.support.admissions import History
from tests.support.rows import Rows

AT_ONCE = 5
MOST_PASSES = 60
SCALERS = """
version: 1
scalers:
  - name: local
    type: bare-metal
    maxAgents: 100
    resourceCap: { maxCpu: 4 }
    labelSets:
      - labels: [linux]
        binaryPath: builtin:agent
"""


def test_a_small_request_far_behind_many_large_ones_is_found(
    runtime: Runtime,
    rows: Rows,
    history: History,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admit, "PER_SCALER", AT_ONCE)
    rows.machine("m1")
    history.configure(tmp_path, SCALERS)
    most = rows.spawn(cpu_millis=4000)
    for _ in range(4 * AT_ONCE):
        rows.request(labels=["linux"], request_cpu_millis=3500, limit_cpu_millis=3500)
    small = rows.request(labels=["linux"], request_cpu_millis=2000, limit_cpu_millis=2000)
    while rows.count("scale_requests", "routed_scaler IS NULL"):
        admit.run_pass(runtime)
    rows.set("spawns", most, cpu_millis=1000)
    for _ in range(MOST_PASSES):
        admit.run_pass(runtime)
        if rows.get("scale_requests", small)["state"] == "assigned":
            break
    assert rows.count("scale_requests", "state = 'assigned'") == 1
    assert rows.get("scale_requests", small)["state"] == "assigned"
