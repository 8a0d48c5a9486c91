"""Named scenarios: one fault at one moment, and what must hold afterwards."""

from __future__ import annotations

import random
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from kici_scaler import checkpoints
from tests.faults.checker import check, keep_history, still_open, wait_for_quiet
from tests.faults.faults import Toll, kill_agent
from tests.faults.jobs import Job, ask_for_all, dispatcher, jobs
from tests.faults.stage import Cast, Stage, stage
from tests.support.waiting import eventually

LOOKS = tuple(name for name in checkpoints.ALL if name.startswith("inspect."))
"""Reached only when an agent was lost."""

STEPS = tuple(name for name in checkpoints.ALL if name not in LOOKS)


def _is_used(the: Stage, step: str) -> bool:
    return not the.is_armed(step)


def _tell(the: Stage, step: str) -> str:
    return f"{step} was never reached: {still_open(the)}"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(STEPS[1::10], id="every tenth"),
        pytest.param(STEPS, marks=pytest.mark.long, id="every one"),
    ],
)
def test_a_process_killed_at_any_named_step_loses_doubles_and_leaks_nothing(
    tmp_path: Path, steps: tuple[str, ...]
) -> None:
    """One checkpoint after another on one stage: somebody dies there while jobs run."""
    with stage(tmp_path, most_agents=1) as the, dispatcher(the) as client:
        keep_history(the)
        asked: list[Job] = []
        for number, step in enumerate(steps):
            batch = jobs(2, seed=number, longest=0.3, prefix=step)
            the.arm(step)
            # Only while somebody else decides is a request stored without being decided, and
            # waits for certain when a sweep looks.
            undecided = step == "intake.stored" or step.startswith("sweep.")
            with the.deciding() if undecided else nullcontext():
                ask_for_all(client, the, batch)
                eventually(partial(_is_used, the, step), within=30, why=partial(_tell, the, step))
            asked += batch
        wait_for_quiet(the, asked, within=120)
        findings = check(the, asked)
        assert findings.none, findings


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_worker_killed_while_it_looks_at_a_dead_agent_leaves_the_verdict_to_the_next(
    tmp_path: Path,
) -> None:
    toll = Toll()
    with stage(tmp_path, most_agents=1) as the, dispatcher(the) as client:
        keep_history(the)
        asked = [Job(f"victim-{step}", 90.0) for step in LOOKS]
        for step, job in zip(LOOKS, asked, strict=True):
            ask_for_all(client, the, [job])
            eventually(lambda: the.rows("SELECT 1 FROM spawns WHERE state = 'busy'"), within=60)
            the.arm(step)
            kill_agent(toll).work(the, random.Random(0), lambda _seconds: None)
            eventually(partial(_is_used, the, step), within=60, why=partial(_tell, the, step))
            wait_for_quiet(the, [job], within=60)
        findings = check(the, asked, may_have_died=toll.killed_agents)
        assert findings.none, findings
        ended = the.rows("SELECT state FROM scale_requests")
        assert [row["state"] for row in ended] == ["failed"] * len(LOOKS)


@pytest.mark.long
@pytest.mark.parametrize("mutex", [True, False], ids=["with the mutex", "without it"])
def test_a_run_without_faults_ends_with_everything_accounted_for(
    tmp_path: Path, mutex: bool
) -> None:
    """What the other runs are measured against."""
    with stage(tmp_path, Cast(mutex=mutex)) as the, dispatcher(the) as client:
        keep_history(the)
        wanted = jobs(8, seed=1, longest=0.5)
        ask_for_all(client, the, wanted)
        wait_for_quiet(the, wanted, within=60)
        findings = check(the, wanted)
        assert findings.none, findings
        for job in wanted:
            _expect_whole_story(the, job)


def _expect_whole_story(the: Stage, job: Job) -> None:
    """The events of a job in their order, and what is kept of its agent."""
    told = the.rows("SELECT type, run_id FROM events WHERE job_id = :job ORDER BY at", job=job.id)
    types = list(dict.fromkeys(str(row["type"]) for row in told))
    assert types[0] == "scaler.provisioning", told
    assert types[-1] == "request.finished", told
    # A quick agent is connected before its backend has told that it is started.
    assert set(types[1:-1]) == {"scaler.ready", "agent.connecting"}, told
    assert {row["run_id"] for row in told} == {"faults"}
    (outcome,) = the.rows("SELECT * FROM outcomes WHERE job_id = :job", job=job.id)
    assert outcome["destroy_reason"] == "job-complete"
    assert set(outcome["timings"]) >= {  # type: ignore[call-overload]  # a JSON object
        "reserved", "spawning", "booting", "idle", "busy", "destroying", "gone",
    }  # fmt: skip
    assert outcome["exit_cause"] is not None
