"""The demo's jobs do what they say, and its judgement is not too kind."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from examples.demo.jobs import DemoJob, Ending, Kind, make_jobs
from kici_scaler.client import JobResult, RequestState


def test_there_are_twenty_jobs_with_the_victim_among_the_first(tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path)
    assert Counter(job.kind for job in jobs) == {
        Kind.CHECKSUM: 8, Kind.FAILURE: 6, Kind.PRIMES: 5, Kind.VICTIM: 1,
    }  # fmt: skip
    assert len({job.job_id for job in jobs}) == 20
    assert Kind.VICTIM in [job.kind for job in jobs[:4]]


def run(job: DemoJob, folder: Path) -> tuple[JobResult, list[str]]:
    done = subprocess.run(
        job.payload.command, input=job.payload.stdin, cwd=folder,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    state = RequestState.FAILED if done.returncode else RequestState.SUCCEEDED
    return JobResult(job.job_id, state, exit_code=done.returncode), done.stdout.splitlines()


@pytest.mark.parametrize("kind", [Kind.CHECKSUM, Kind.PRIMES, Kind.FAILURE])
def test_a_command_ends_as_its_job_has_to(tmp_path: Path, kind: Kind) -> None:
    job = next(each for each in make_jobs(tmp_path) if each.kind is kind)
    result, lines = run(job, tmp_path)
    assert job.ending.complaint(result, lines) == ""


def test_without_a_compiler_primes_are_counted_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.demo.jobs.shutil.which", lambda _name: None)
    job = next(each for each in make_jobs(tmp_path) if each.kind is Kind.PRIMES)
    assert job.payload.stdin is None
    assert job.ending.complaint(*run(job, tmp_path)) == ""


GOOD = Ending(RequestState.FAILED, 3, line="failed", error="on purpose")


@pytest.mark.parametrize(
    ("result", "lines", "complaint"),
    [
        (JobResult("a", RequestState.FAILED, 3, error="on purpose"), ["it failed"], ""),
        (JobResult("a", RequestState.SUCCEEDED, 3), ["failed"], "ended as succeeded, not failed"),
        (JobResult("a", RequestState.FAILED, 4), ["failed"], "exit code 4, not 3"),
        (JobResult("a", RequestState.FAILED, 3), ["failed"], "says None, not 'on purpose'"),
        (JobResult("a", RequestState.FAILED, 3, error="on purpose"), [], "its log lacks 'failed'"),
    ],
)
def test_every_part_of_an_end_is_judged(
    result: JobResult, lines: list[str], complaint: str
) -> None:
    assert GOOD.complaint(result, lines) == complaint
