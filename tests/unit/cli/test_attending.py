"""A command that stands for a job ends as the job does, and says when it never ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from kici_scaler.cli.attending import Manner, NeverRan, attend
from kici_scaler.cli.following import exit_code_of
from kici_scaler.client import DispatcherClient, JobRequest, JobResult, Payload, RequestState
from kici_scaler.sealing import generate_key

JOB = "job-1"
REQUEST = JobRequest(
    job_id=JOB, run_id="run", labels=("linux", "gpu"), payload=Payload(("make", "test"))
)


@dataclass
class PlayedGateway:
    """Answers as a gateway would whose job goes through `states`, one a look."""

    answer: dict[str, Any]
    states: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""
    cancelled: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        match request.method, request.url.path:
            case "GET", "/v1/sealing-key":
                return httpx.Response(200, json=generate_key().public.as_json())
            case "POST", "/v1/requests":
                return httpx.Response(201, json={"jobId": JOB, **self.answer})
            case "POST", "/v1/requests/job-1/cancel":
                self.cancelled.append(json.loads(request.content)["reason"])
                self.states = [{"state": "cancelled", "reason": "called off"}]
                return httpx.Response(200, json={"jobId": JOB, "state": "cancelled"})
            case "GET", "/v1/requests/job-1":
                seen = self.states.pop(0) if len(self.states) > 1 else self.states[0]
                return httpx.Response(200, json={"jobId": JOB, "runId": "run", **seen})
            case "GET", "/v1/requests/job-1/log":
                return httpx.Response(200, content=self.log)
            case other:
                raise AssertionError(other)


def run(gateway: PlayedGateway, manner: Manner | None = None) -> int:
    transport = httpx.MockTransport(gateway)
    with DispatcherClient("http://scaler", "key", transport=transport) as scaler:
        return attend(scaler, REQUEST, manner or Manner())


SPAWNING = {"result": "spawning", "state": "assigned"}


def test_it_ends_with_the_code_of_the_job_and_prints_its_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = [
        {"seq": 1, "stream": "stdout", "lines": ["one", "two"]},
        {"seq": 2, "stream": "stderr", "lines": ["oops"]},
    ]
    gateway = PlayedGateway(
        SPAWNING,
        [
            {"state": "waiting", "reason": "scaler `local` has 2 of 2 agents"},
            {"state": "running", "agentId": "a"},
            {"state": "failed", "result": {"status": "failed", "exitCode": 3}},
        ],
        log="".join(json.dumps(line) + "\n" for line in lines),
    )
    assert run(gateway) == 3
    seen = capsys.readouterr()
    assert seen.out == "one\ntwo\n"
    assert "oops" in seen.err
    assert "waits: scaler `local` has 2 of 2 agents" in seen.err
    assert "failed with exit code 3" in seen.err


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (JobResult(JOB, RequestState.SUCCEEDED, exit_code=0), 0),
        (JobResult(JOB, RequestState.FAILED, exit_code=3), 3),
        (JobResult(JOB, RequestState.FAILED, signal=9), 137),
        (JobResult(JOB, RequestState.FAILED, error="its agent was ended"), 125),
        (JobResult(JOB, RequestState.CANCELLED), 125),
    ],
)
def test_exit_codes(result: JobResult, code: int) -> None:
    assert exit_code_of(result) == code


def test_a_job_without_an_end_of_its_own_is_an_error_of_the_scaler() -> None:
    ended = {"state": "failed", "reason": "its agent was ended by signal 9", "result": None}
    with pytest.raises(NeverRan, match="its agent was ended by signal 9") as caught:
        run(PlayedGateway(SPAWNING, [ended]))
    assert caught.value.exit_code == 125


def test_what_nothing_serves_is_called_off_at_once() -> None:
    reason = "no scaler offers `gpu`"
    gateway = PlayedGateway(
        {"result": "no-backend", "state": "waiting", "reason": reason},
        [{"state": "waiting", "reason": reason}],
    )
    with pytest.raises(NeverRan, match="no scaler offers `gpu`"):
        run(gateway)
    assert gateway.cancelled == ["nothing serves it"]


def test_an_older_request_of_the_same_id_is_left_alone() -> None:
    gateway = PlayedGateway(
        {"result": "failed", "state": "waiting", "reason": "requested before with other labels"},
        [{"state": "waiting", "reason": "scaler `local` has 2 of 2 agents"}],
    )
    with pytest.raises(NeverRan, match="requested before"):
        run(gateway)
    assert gateway.cancelled == []


def test_a_refused_job_never_ran() -> None:
    answer = {"result": "at-capacity", "state": "refused", "reason": "no room"}
    with pytest.raises(NeverRan, match="no room"):
        run(PlayedGateway(answer))


def test_without_waiting_the_id_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(PlayedGateway(SPAWNING), Manner(wait=False)) == 0
    assert capsys.readouterr().out == f"{JOB}\n"


def test_past_its_time_the_job_is_cancelled() -> None:
    gateway = PlayedGateway(SPAWNING, [{"state": "running", "agentId": "a"}])
    assert run(gateway, Manner(seconds=0.0)) == 124
    assert gateway.cancelled == ["not over within 0 s"]


def test_an_interrupted_command_cancels_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = PlayedGateway(SPAWNING, [{"state": "running", "agentId": "a"}])
    interrupts: Iterator[None] = iter([None])

    def interrupted_once(_seconds: float) -> None:
        for _ in interrupts:
            raise KeyboardInterrupt

    monkeypatch.setattr("kici_scaler.cli.following.time.sleep", interrupted_once)
    assert run(gateway) == 130
    assert gateway.cancelled == ["interrupted at the terminal"]


def test_a_result_for_programs_stands_alone_on_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gateway = PlayedGateway(
        SPAWNING,
        [{"state": "succeeded", "result": {"status": "succeeded", "exitCode": 0}}],
        log='{"seq": 1, "stream": "stdout", "lines": ["one"]}\n',
    )
    assert run(gateway, Manner(as_json=True, quiet=True)) == 0
    seen = capsys.readouterr()
    assert json.loads(seen.out)["exitCode"] == 0
    assert seen.err == "one\n"
