"""What an agent leaves on disk for its backend and for another process of itself."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from kici_scaler.agent.codec import Malformed
from kici_scaler.agent.conduct import Job, State
from kici_scaler.agent.protocol import JobClaim, JobPhase, JobResult, JobStatus
from kici_scaler.agent.spool import Identity, Memory, Spool, StoredResult, read_result

IDENTITY = Identity("agent", ("a", "b"), "ws://gateway/v1/agents")
RESULT = JobResult(JobStatus.FAILED, 1, 2, exit_code=3, error="why")
STORED = StoredResult("agent", "job", "run", RESULT)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool.open(tmp_path / "state")


def _memory(phase: JobPhase | None) -> Memory:
    job = None if phase is None else JobClaim("job", phase)
    return Memory(IDENTITY, 4, "resume", job, "run")


def test_what_is_remembered_is_recalled(spool: Spool) -> None:
    spool.remember(_memory(JobPhase.RUNNING))
    assert spool.recall() == _memory(JobPhase.RUNNING)


def test_only_its_owner_reads_it(spool: Spool) -> None:
    spool.remember(_memory(None))
    spool.store_result(STORED)
    modes = {stat.S_IMODE(each.stat().st_mode) for each in spool.directory.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(spool.directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"identity": 1}'])
def test_a_broken_memory_is_none(spool: Spool, text: str) -> None:
    (spool.directory / "state.json").write_text(text)
    assert spool.recall() is None


def test_a_result_is_read_back_by_a_backend(spool: Spool) -> None:
    assert read_result(spool.directory) is None
    spool.store_result(STORED)
    assert read_result(spool.directory) == STORED
    assert json.loads((spool.directory / "result.json").read_text()) == {
        "agentId": "agent",
        "jobId": "job",
        "runId": "run",
        "result": {
            "status": "failed",
            "startedAt": 1,
            "finishedAt": 2,
            "exitCode": 3,
            "signal": None,
            "error": "why",
        },
        "acknowledged": False,
    }


def test_a_backend_is_told_when_a_result_is_broken(spool: Spool) -> None:
    (spool.directory / "result.json").write_text('{"agentId": "agent"}')
    with pytest.raises(Malformed):
        read_result(spool.directory)


def test_no_folder_is_no_result(tmp_path: Path) -> None:
    assert read_result(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("phase", "stored", "state"),
    [
        (None, None, State()),
        (JobPhase.ACCEPTED, None, State(Job("job", "run", JobPhase.ACCEPTED))),
        (JobPhase.RUNNING, None, State(Job("job", "run", JobPhase.RUNNING))),
        # Killed between the two writes that end a job.
        (JobPhase.RUNNING, STORED, State(Job("job", "run", JobPhase.FINISHED, RESULT))),
        (JobPhase.FINISHED, STORED, State(Job("job", "run", JobPhase.FINISHED, RESULT))),
        # Its result was lost; that its command ran was not.
        (JobPhase.FINISHED, None, State(Job("job", "run", JobPhase.RUNNING))),
        # A result of another job says nothing about this one.
        (
            JobPhase.RUNNING,
            StoredResult("agent", "earlier", "run", RESULT),
            State(Job("job", "run", JobPhase.RUNNING)),
        ),
        (
            JobPhase.FINISHED,
            StoredResult("agent", "job", "run", RESULT, acknowledged=True),
            State(Job("job", "run", JobPhase.FINISHED, RESULT), acknowledged=True),
        ),
    ],
)
def test_the_state_after_a_crash_at_any_write(
    spool: Spool, phase: JobPhase | None, stored: StoredResult | None, state: State
) -> None:
    if stored is not None:
        spool.store_result(stored)
    assert spool.state(_memory(phase)) == state


def test_writing_leaves_nothing_else_behind(spool: Spool) -> None:
    for _ in range(3):
        spool.remember(_memory(None))
        spool.store_result(STORED)
    assert sorted(each.name for each in spool.directory.iterdir()) == ["result.json", "state.json"]
    spool.begin_anew()
    assert list(spool.directory.iterdir()) == []
