"""Waiting for jobs, reading their logs, following events, cancelling."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import httpx
import pytest

from kici_scaler.client import (
    BadAnswer,
    DispatcherClient,
    Event,
    JobResult,
    LogLine,
    NotAllowed,
    RequestState,
    StillGoing,
    Unanswered,
    UnknownJob,
)
from kici_scaler.errors import KiciError
from tests.unit.client.conftest import FakeGateway, FakeTime

JOB = "/v1/requests/j"
WAITING = {"jobId": "j", "runId": "r", "state": "waiting", "reason": "no room"}
ENDED = {
    "jobId": "j",
    "runId": "r",
    "state": "failed",
    "reason": "",
    "agentId": "scaler-x-1",
    "result": {
        "status": "failed",
        "exitCode": 3,
        "signal": None,
        "error": None,
        "startedAt": 1_000,
        "finishedAt": 2_500,
    },
    "lastProvisioningError": None,
    "createdAt": "2024-05-01T10:00:00Z",
    "finishedAt": "2024-05-01T10:01:00+00:00",
}


def _ok(value: object) -> httpx.Response:
    return httpx.Response(200, json=value)


def test_the_end_of_a_job_is_awaited(
    gateway: FakeGateway, scaler: DispatcherClient, fake_time: FakeTime
) -> None:
    running = {**WAITING, "state": "running"}
    gateway.will(JOB, _ok(WAITING), _ok(running), httpx.ConnectError("gone"), _ok(ENDED))
    result = scaler.wait("j", timeout=60)

    assert result == JobResult(
        "j",
        RequestState.FAILED,
        exit_code=3,
        started_at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        finished_at=datetime(1970, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC),
        agent_id="scaler-x-1",
    )
    assert not result.succeeded
    assert len(fake_time.waits) == 3


def test_a_job_that_takes_too_long_is_still_going(
    gateway: FakeGateway, scaler: DispatcherClient, fake_time: FakeTime
) -> None:
    gateway.will(JOB, _ok(WAITING))
    with pytest.raises(StillGoing, match="job j is waiting after 20 s: no room") as caught:
        scaler.wait("j", timeout=20)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, KiciError)
    assert 18 < sum(fake_time.waits) <= 20
    assert fake_time.waits == sorted(fake_time.waits)
    assert 1.0 < fake_time.waits[-1] <= 2.0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({**WAITING, "state": "refused", "reason": "nothing offers gpu"}, "nothing offers gpu"),
        ({**WAITING, "state": "cancelled", "result": {"error": "not needed"}}, "not needed"),
        (
            {**WAITING, "state": "failed", "reason": "", "lastProvisioningError": "no image"},
            "no image",
        ),
    ],
)
def test_a_job_that_never_ran_says_why(
    gateway: FakeGateway, scaler: DispatcherClient, answer: object, error: str
) -> None:
    gateway.will(JOB, _ok(answer))
    result = scaler.wait("j", timeout=1)
    assert (result.exit_code, result.error) == (None, error)


def test_a_job_nobody_requested_is_unknown(gateway: FakeGateway, scaler: DispatcherClient) -> None:
    told = {"error": {"code": "not-found", "message": "no request of job 'j' is known"}}
    gateway.will(JOB, httpx.Response(404, json=told))
    with pytest.raises(UnknownJob, match="no request of job 'j' is known"):
        scaler.wait("j", timeout=60)


def test_a_job_is_seen_as_it_stands(gateway: FakeGateway, scaler: DispatcherClient) -> None:
    gateway.will(JOB, _ok(ENDED))
    seen = scaler.get("j")
    assert (seen.run_id, seen.state, seen.agent_id) == ("r", RequestState.FAILED, "scaler-x-1")
    assert seen.created_at == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert seen.finished_at == datetime(2024, 5, 1, 10, 1, tzinfo=UTC)


@pytest.mark.parametrize("answer", [{**ENDED, "state": "lost"}, {**ENDED, "createdAt": "soon"}])
def test_a_job_in_a_state_nobody_knows_is_a_bad_answer(
    gateway: FakeGateway, scaler: DispatcherClient, answer: object
) -> None:
    gateway.will(JOB, _ok(answer))
    with pytest.raises(BadAnswer):
        scaler.get("j")


def test_a_job_is_called_off_with_the_reason(
    gateway: FakeGateway, scaler: DispatcherClient
) -> None:
    gateway.will(f"{JOB}/cancel", httpx.Response(503), _ok({"jobId": "j", "state": "cancelled"}))
    assert scaler.cancel("j", reason="a newer commit") is RequestState.CANCELLED
    assert gateway.bodies(f"{JOB}/cancel") == [{"reason": "a newer commit"}] * 2
    scaler.cancel("j")
    assert gateway.bodies(f"{JOB}/cancel")[-1] == {}


def test_a_job_id_cannot_leave_its_place_in_the_path(
    gateway: FakeGateway, scaler: DispatcherClient
) -> None:
    gateway.will("/v1/requests/a/../b?c", _ok(ENDED))
    scaler.get("a/../b?c")
    assert gateway.seen[-1].url.raw_path == b"/v1/requests/a%2F..%2Fb%3Fc"


class _Broken(httpx.SyncByteStream):
    """An answer that breaks off after some lines."""

    def __init__(self, lines: list[str], problem: Exception | None = None) -> None:
        self._lines = lines
        self._problem = problem

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            yield line.encode()
        if self._problem is not None:
            raise self._problem


def _log(*records: tuple[int, str, list[str]], problem: Exception | None = None) -> httpx.Response:
    lines = [
        json.dumps({"seq": seq, "stream": stream, "lines": lines}) + "\n"
        for seq, stream, lines in records
    ]
    return httpx.Response(200, stream=_Broken(["\n", *lines], problem))


def test_a_log_is_read_to_its_end(gateway: FakeGateway, scaler: DispatcherClient) -> None:
    gateway.will(f"{JOB}/log", _log((1, "stdout", ["a", "b"]), (2, "stderr", ["c"])))
    assert list(scaler.log("j")) == [
        LogLine(1, "stdout", "a"),
        LogLine(1, "stdout", "b"),
        LogLine(2, "stderr", "c"),
    ]


@pytest.mark.parametrize(
    "problem",
    [httpx.ReadError("cut"), httpx.RemoteProtocolError("cut"), httpx.ReadTimeout("quiet")],
)
def test_a_log_that_breaks_off_goes_on_where_it_broke(
    gateway: FakeGateway, scaler: DispatcherClient, problem: Exception
) -> None:
    gateway.will(
        f"{JOB}/log",
        httpx.ConnectError("starting"),
        _log((1, "stdout", ["a", "b"]), problem=problem),
        httpx.Response(503),
        _log((1, "stdout", ["a", "b"]), (2, "stdout", ["c"])),
    )
    assert [line.text for line in scaler.log("j")] == ["a", "b", "c"]
    assert [request.url.params["after"] for request in gateway.seen] == ["0", "0", "1", "1"]


def test_a_log_that_stays_away_is_given_up(
    gateway: FakeGateway, scaler: DispatcherClient, fake_time: FakeTime
) -> None:
    gateway.will(f"{JOB}/log", httpx.ConnectError("refused"))
    with pytest.raises(Unanswered, match="log of job j cannot be followed: ConnectError: refused"):
        list(scaler.log("j"))
    assert 30 <= sum(fake_time.waits) < 60


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(401, text="no"), NotAllowed),
        (httpx.Response(404, text="no"), UnknownJob),
        (httpx.Response(200, text="not json\n"), BadAnswer),
        (httpx.Response(200, text="[]\n"), BadAnswer),
    ],
)
def test_a_log_that_is_none_is_told(
    gateway: FakeGateway, scaler: DispatcherClient, answer: httpx.Response, error: type[Exception]
) -> None:
    gateway.will(f"{JOB}/log", answer)
    with pytest.raises(error):
        list(scaler.log("j"))


def _events(*numbers: int) -> httpx.Response:
    listed = [
        {"id": n, "type": "scaler.ready", "at": "2024-05-01T10:00:00Z", "agentId": "a",
         "jobId": None, "runId": None, "detail": "d"}
        for n in numbers
    ]  # fmt: skip
    return _ok({"events": listed, "nextAfter": max(numbers, default=0)})


def test_events_are_followed_without_a_gap(gateway: FakeGateway, scaler: DispatcherClient) -> None:
    gateway.will("/v1/events", _events(4, 6), _events(), _events(7), _events())
    found = list(islice(scaler.events(after=3), 3))
    assert [each.id for each in found] == [4, 6, 7]
    assert found[0] == Event(4, "scaler.ready", "d", datetime(2024, 5, 1, 10, tzinfo=UTC), "a")
    assert [request.url.params["after"] for request in gateway.seen] == ["3", "6", "6"]
    assert gateway.seen[0].url.params["wait"] == "20"


def test_events_end_where_the_list_ends_for_who_does_not_follow(
    gateway: FakeGateway, scaler: DispatcherClient
) -> None:
    gateway.will("/v1/events", _events(1), _events(2), _events())
    assert [each.id for each in scaler.events(follow=False)] == [1, 2]
    assert gateway.seen[0].url.params["wait"] == "0"


def test_an_event_without_a_number_is_a_bad_answer(
    gateway: FakeGateway, scaler: DispatcherClient
) -> None:
    gateway.will("/v1/events", _ok({"events": [{"type": "x"}]}))
    with pytest.raises(BadAnswer):
        list(scaler.events(follow=False))
