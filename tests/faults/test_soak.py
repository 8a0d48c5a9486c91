"""Jobs come for as long as is asked while anything happens to any part; nothing is lost or grows.

`make soak` runs it for an hour and writes the fault report; what every change runs takes a moment.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from kici_scaler.client import DispatcherClient
from tests.faults import report
from tests.faults.checker import check, keep_history, through_outages, wait_for_quiet
from tests.faults.families import SEED, everything
from tests.faults.faults import Toll
from tests.faults.jobs import Job, ask_for_all, dispatcher, jobs
from tests.faults.nemesis import Nemesis
from tests.faults.stage import Cast, Stage, stage
from tests.support.waiting import eventually

SECONDS = float(os.environ.get("KICI_SOAK_SECONDS", "15"))
MOST_OPEN = 12
"""Jobs that wait or run at once: three times what may run, so that there always is a queue."""
BATCH = 4
LONG = 600.0
"""Seconds from which on a soak is long: its faults leave time to recover, its growth is judged."""
MOST_GROWTH_BYTES = 64 << 20
"""By which one process of a role may be larger at the end than any of its role was early on."""


@dataclass
class Sizes:
    """How large the roles' processes are, looked at every now and then."""

    stage: Stage
    seen: list[dict[str, int]] = field(default_factory=list)

    def look(self) -> None:
        """Note the resident bytes of the largest process of each role."""
        now: dict[str, int] = {}
        for name in self.stage.names:
            role = name.rpartition("-")[0]
            now[role] = max(now.get(role, 0), _resident(self.stage, name))
        self.seen.append(now)

    def grown(self) -> dict[str, int]:
        """By how many bytes the last quarter's largest is over the first quarter's, by role."""
        quarter = max(1, len(self.seen) // 4)
        early, late = self.seen[:quarter], self.seen[-quarter:]
        return {role: _largest(late, role) - _largest(early, role) for role in self.seen[0]}


def _largest(looks: list[dict[str, int]], role: str) -> int:
    return max(look[role] for look in looks)


def _resident(stage: Stage, name: str) -> int:
    pid = stage.roles.supervisor.pid(name)
    if pid is None:
        return 0
    try:
        root = psutil.Process(pid)
        return max(each.memory_info().rss for each in (root, *root.children()))
    except psutil.NoSuchProcess:
        return 0


def _has_room(stage: Stage) -> bool:
    row = stage.rows("SELECT count(*) AS n FROM scale_requests WHERE finished_at IS NULL")
    return int(str(row[0]["n"])) <= MOST_OPEN - BATCH


def _keep_asking(
    stage: Stage, client: DispatcherClient, nemesis: Nemesis, sizes: Sizes
) -> list[Job]:
    """Ask for jobs, a few at a time, until the time is over; say each minute how far it is."""
    asked: list[Job] = []
    has_room = through_outages(lambda: _has_room(stage))
    began = said = time.monotonic()
    while (now := time.monotonic()) - began < SECONDS:
        batch = jobs(BATCH, SEED, longest=1.5, prefix=f"soak-{len(asked)}")
        asked += batch
        ask_for_all(client, stage, batch)
        sizes.look()
        if now - said >= 60:
            said = now
            print(f"{now - began:5.0f} s: {len(asked)} jobs, {len(nemesis.log)} faults", flush=True)
        eventually(has_room, within=300, why="the queue did not get shorter")
    return asked


@pytest.mark.timeout(SECONDS + 2400)
@pytest.mark.parametrize("seed", [SEED])
def test_a_soak_loses_doubles_leaks_and_grows_nothing(tmp_path: Path, seed: int) -> None:
    toll = Toll()
    cast = Cast(control=1, workers=2, gateways=2, beats=2, mutex=seed % 2 == 0)
    pauses = (1.0, 8.0) if SECONDS >= LONG else (0.3, 1.5)
    with stage(tmp_path, cast) as the, dispatcher(the, patience=180) as client:
        keep_history(the)
        sizes = Sizes(the)
        with Nemesis(the, everything(toll), seed, pauses) as nemesis:
            asked = _keep_asking(the, client, nemesis, sizes)
        print(f"seed {seed}, {SECONDS:.0f} s, {len(asked)} jobs: {dict(nemesis.counts)}")
        wait_for_quiet(the, asked, within=240)
        report.note_injected(nemesis.counts, seed)
        findings = check(the, asked, may_have_died=toll.killed_agents)
        assert findings.none, (seed, findings)
        if SECONDS >= LONG:
            grown = sizes.grown()
            print(f"grown by role, in bytes: {grown}")
            assert all(by <= MOST_GROWTH_BYTES for by in grown.values()), grown
