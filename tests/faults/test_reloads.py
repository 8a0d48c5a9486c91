"""Reloads under load while workers are killed: intake never pauses, no job is lost or doubled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kici_scaler.cli.operator_client import OperatorClient
from kici_scaler.client import DispatcherClient, Rejected
from tests.faults import faults, report
from tests.faults.checker import check, keep_history, still_open, wait_for_quiet
from tests.faults.intake import SteadyIntake
from tests.faults.jobs import dispatcher, jobs, request_of
from tests.faults.nemesis import Nemesis
from tests.faults.stage import Cast, Stage, stage
from tests.support.waiting import eventually

LONGEST_PAUSE = 15.0
"""Seconds that one answer may take on a machine that runs everything, its faults, and others."""
SEED = 11


def _document(**most: int) -> dict[str, Any]:
    """Scalers of these names and caps; all serve the same jobs."""
    return {
        "version": 1,
        "globalMaxAgents": 4,
        "scalers": [
            {
                "name": name,
                "type": "bare-metal",
                "maxAgents": most_agents,
                "maxConcurrentSpawns": most_agents,
                "labelSets": [{"labels": ["linux", "faults", name], "binaryPath": "builtin:agent"}],
            }
            for name, most_agents in most.items()
        ],
    }


GOOD = (
    _document(local=3, second=2),
    _document(local=1, second=4),
    _document(second=2),
    _document(second=3, third=2),
    _document(third=1, local=3),
    _document(local=4),
)
"""Each is another by every bucket: scalers come, change, go, and come back."""
BAD = (
    {**_document(local=1), "globalMaxAgents": 0},
    _document(local=-1),
    {"version": 1},
)


def _reload_again_and_again(stage: Stage, operator: OperatorClient, times: int) -> Iterator[int]:
    """Each reload's revision; a bad configuration in between changes nothing."""
    for number in range(times):
        if number % 4 == 3:
            before = _active(stage)
            with pytest.raises(Rejected):
                operator.post("/v1/config/reload", {"document": BAD[number % len(BAD)]})
            assert _active(stage) == before
        answer = operator.post("/v1/config/reload", {"document": GOOD[number % len(GOOD)]})
        assert answer["revision"] == _active(stage)
        yield answer["revision"]


def _active(stage: Stage) -> object:
    return stage.rows("SELECT id FROM config_revisions WHERE active")[0]["id"]


def _run(folder: Path, *, reloads: int, every: float) -> None:
    pause = threading.Event()
    with (
        stage(folder, Cast(control=1, workers=2)) as the,
        dispatcher(the) as client,
        OperatorClient(_url(the), _operator_key(the), answer_within=30) as operator,
    ):
        keep_history(the)
        known = jobs(6, SEED, longest=2.0)
        killed = (faults.kill_role("control"), faults.kill_role("bare-metal"))
        with SteadyIntake(the, client) as intake, Nemesis(the, killed, SEED) as nemesis:
            for job in known:
                client.request(request_of(job, the.witness))
            for _ in _reload_again_and_again(the, operator, reloads):
                pause.wait(every)
        print(f"{len(intake.asked)} asked, slowest {intake.slowest:.2f} s, {dict(nemesis.counts)}")
        assert sum(nemesis.counts.values()) > 0
        report.note_injected(nemesis.counts, SEED)
        refused = [each for each in intake.asked if not each.found_a_scaler]
        assert not refused, f"{len(refused)} of {len(intake.asked)} refused: {refused[:3]}"
        assert intake.slowest < LONGEST_PAUSE
        operator.post("/v1/config/reload", {"document": GOOD[-1]})
        called_off = _call_off_what_waits(the, client)
        wanted = [*known, *(each.job for each in intake.asked if each.job.id not in called_off)]
        wait_for_quiet(the, wanted, within=120)
        findings = check(the, wanted)
        assert findings.none, findings
        eventually(
            lambda: not the.rows("SELECT 1 FROM scaler_states WHERE standing = 'retiring'"),
            within=10,
            why=lambda: still_open(the),
        )


def _call_off_what_waits(stage: Stage, client: DispatcherClient) -> set[str]:
    """The load was never meant to be worked off; what has an agent goes on."""
    waiting = stage.rows(
        "SELECT job_id FROM scale_requests WHERE state = 'waiting' AND job_id LIKE 'steady-%'"
    )
    for row in waiting:
        client.cancel(str(row["job_id"]))
    cancelled = stage.rows("SELECT job_id FROM scale_requests WHERE cancel_reason IS NOT NULL")
    return {str(row["job_id"]) for row in cancelled}


def _url(stage: Stage) -> str:
    return f"http://127.0.0.1:{stage.front.port}"


def _operator_key(stage: Stage) -> str:
    return stage.roles.profile.api_key_path.read_text().strip()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_reloads_under_load_pause_no_intake_and_lose_no_job(tmp_path: Path) -> None:
    _run(tmp_path, reloads=6, every=0.4)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_hundred_reloads_under_load_do_neither(tmp_path: Path) -> None:
    _run(tmp_path, reloads=100, every=0.6)
