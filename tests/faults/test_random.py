"""A seeded driver runs jobs while anything may happen to any part; then all is compared.

`make faults` runs the long forms; `KICI_FAULT_SEED` chooses another seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults import faults, report
from tests.faults.checker import (
    check,
    keep_history,
    wait_for_ended,
    wait_for_quiet,
)
from tests.faults.families import (
    SEED,
    broker_faults,
    database_faults,
    everything,
    process_faults,
)
from tests.faults.faults import Fault, Toll
from tests.faults.findings import Findings
from tests.faults.jobs import ask_for_all, dispatcher, jobs
from tests.faults.nemesis import Nemesis
from tests.faults.stage import Cast, stage


def run(folder: Path, seed: int, count: int, what: Sequence[Fault], toll: Toll) -> Findings:
    """Ask for `count` jobs while the faults happen; wait for quiet; compare."""
    cast = Cast(control=1, workers=2, gateways=2, beats=2, mutex=seed % 2 == 0)
    with stage(folder, cast) as the, dispatcher(the, patience=180) as client:
        keep_history(the)
        wanted = jobs(count, seed, longest=1.0)
        with Nemesis(the, what, seed) as nemesis:
            ask_for_all(client, the, wanted)
            wait_for_ended(the, count * 3 // 4, within=600)
        print(f"seed {seed}: {dict(nemesis.counts)}")
        wait_for_quiet(the, wanted, within=240)
        report.note_injected(nemesis.counts, seed)
        return check(the, wanted, may_have_died=toll.killed_agents)


FAMILIES = {
    "processes": lambda toll: (*process_faults(), faults.kill_agent(toll)),
    "broker": lambda toll: broker_faults(),
    "database": lambda toll: database_faults(),
}


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_fault_loses_doubles_leaks_or_wrongs_a_job(tmp_path: Path, family: str) -> None:
    toll = Toll()
    findings = run(tmp_path, SEED, 16, FAMILIES[family](toll), toll)
    assert findings.none, (SEED, findings)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEED, SEED + 6))
def test_everything_at_once_for_long(tmp_path: Path, seed: int) -> None:
    toll = Toll()
    findings = run(tmp_path, seed, 120, everything(toll), toll)
    assert findings.none, (seed, findings)
