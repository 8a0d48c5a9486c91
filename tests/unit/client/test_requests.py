"""What is sent for a request, and what becomes of the answers."""

from __future__ import annotations

import json

import httpx
import pytest

from kici_scaler.client import (
    BadAnswer,
    DispatcherClient,
    JobRequest,
    NotAllowed,
    Payload,
    RegistryCredentials,
    Rejected,
    RequestAnswer,
    RequestResult,
    RequestState,
    Unanswered,
    UnknownJob,
)
from kici_scaler.sealing import Envelope, SealingError, open_envelope
from kici_scaler.service.request_body import MAX_SEALED_BYTES, parse_request
from tests.unit.client.conftest import KEYS, FakeGateway, FakeTime

PATH = "/v1/requests"
PAYLOAD = Payload(("make", "test"), {"CI": "1"}, "input", 60.0)
REQUEST = JobRequest(job_id="j", run_id="r", labels=("linux", "gpu"), payload=PAYLOAD)
SPAWNING = {"jobId": "j", "result": "spawning", "state": "assigned", "agentId": "scaler-x-1"}


def _ok(value: object) -> httpx.Response:
    return httpx.Response(201, json=value)


def _error(status: int, message: str = "what happened", hint: str = "") -> httpx.Response:
    error = {"code": "some-code", "message": message, "hint": hint}
    return httpx.Response(status, json={"error": error})


def test_a_request_is_answered(gateway: FakeGateway, scaler: DispatcherClient) -> None:
    gateway.will(
        PATH, _ok({**SPAWNING, "reason": "", "scaler": "pool", "backendType": "container"})
    )
    assert scaler.request(REQUEST) == RequestAnswer(
        "j", RequestResult.SPAWNING, RequestState.ASSIGNED, "", "scaler-x-1", "container", "pool"
    )
    assert gateway.seen[-1].headers["authorization"] == "Bearer the-key"


def test_the_payload_travels_sealed_and_opens_to_what_the_agent_is_sent(
    gateway: FakeGateway, scaler: DispatcherClient
) -> None:
    gateway.will(PATH, _ok(SPAWNING))
    scaler.request(REQUEST)
    (body,) = gateway.bodies(PATH)

    assert json.loads(open_envelope(KEYS, Envelope.from_json(body["payload"]))) == {
        "command": ["make", "test"],
        "env": {"CI": "1"},
        "stdin": "input",
        "timeoutSeconds": 60.0,
    }
    assert body == {
        "jobId": "j",
        "runId": "r",
        "labels": ["linux", "gpu"],
        "excludeLabels": [],
        "priority": 0,
        "wait": True,
        "payload": body["payload"],
    }


def test_the_gateway_takes_every_field_the_client_sends(
    gateway: FakeGateway, scaler: DispatcherClient
) -> None:
    gateway.will(PATH, _ok(SPAWNING))
    scaler.request(
        JobRequest(
            job_id="j",
            run_id="r",
            labels=("linux",),
            exclude_labels=("slow",),
            payload=PAYLOAD,
            resources={"requests": {"cpus": 1, "memory": "1Gi"}, "limits": {"cpus": 2}},
            org="acme",
            role="builder",
            priority=5,
            image="registry.example/image:1",
            registry_credentials=RegistryCredentials("user", "password", "registry.example"),
            wait=False,
            max_requeues=3,
        )
    )
    (body,) = gateway.bodies(PATH)
    parsed = parse_request(body)
    assert (parsed.job_id, parsed.org, parsed.priority) == ("j", "acme", 5)
    assert (parsed.wait, parsed.max_requeues) == (False, 3)
    assert parsed.resources.limits.cpu_millis == 2000
    opened = open_envelope(KEYS, Envelope.from_json(body["registryCredentials"]))
    assert json.loads(opened) == {
        "username": "user",
        "password": "password",
        "server": "registry.example",
    }
    assert "password" not in json.dumps(body)


def test_many_requests_go_in_batches_and_keep_their_order(
    gateway: FakeGateway, scaler: DispatcherClient
) -> None:
    requests = [
        JobRequest(job_id=f"j{n}", run_id="r", labels=("linux",), payload=PAYLOAD)
        for n in range(501)
    ]
    answers = [{"jobId": each.job_id, "result": "queued"} for each in requests]
    gateway.will(f"{PATH}/batch", _ok({"answers": answers[:500]}), _ok({"answers": answers[500:]}))
    found = scaler.request_many(requests)

    assert [each.job_id for each in found] == [each.job_id for each in requests]
    assert [len(body["requests"]) for body in gateway.bodies(f"{PATH}/batch")] == [500, 1]
    assert scaler.request_many([]) == ()


def test_answers_that_are_too_few_are_no_answers(
    gateway: FakeGateway, scaler: DispatcherClient
) -> None:
    gateway.will(f"{PATH}/batch", _ok({"answers": []}))
    with pytest.raises(BadAnswer, match="1 requests got 0 answers"):
        scaler.request_many([REQUEST])


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("silent"),
        httpx.RemoteProtocolError("cut off"),
        _error(500),
        _error(503),
        _error(429),
        httpx.Response(502, text="<html>bad gateway</html>"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else str(each.status_code),
)
def test_a_request_is_repeated_as_it_was_until_answered(
    gateway: FakeGateway,
    scaler: DispatcherClient,
    fake_time: FakeTime,
    failure: httpx.Response | Exception,
) -> None:
    gateway.will(PATH, failure, failure, failure, _ok(SPAWNING))
    assert scaler.request(REQUEST).result is RequestResult.SPAWNING

    bodies = gateway.bodies(PATH)
    assert len(bodies) == 4
    assert all(body == bodies[0] for body in bodies)
    assert len(fake_time.waits) == 3
    assert fake_time.waits == sorted(fake_time.waits)


def test_a_gateway_may_say_when_to_ask_again(
    gateway: FakeGateway, scaler: DispatcherClient, fake_time: FakeTime
) -> None:
    gateway.will(PATH, httpx.Response(429, headers={"retry-after": "7"}), _ok(SPAWNING))
    scaler.request(REQUEST)
    assert fake_time.waits == [7.0]


def test_a_request_never_answered_may_exist_or_not(
    gateway: FakeGateway, scaler: DispatcherClient, fake_time: FakeTime
) -> None:
    gateway.will(PATH, httpx.ConnectError("refused"))
    with pytest.raises(Unanswered, match="was not answered within 30 s") as caught:
        scaler.request(REQUEST)
    assert "refused" in str(caught.value)
    assert sum(fake_time.waits) <= 30


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Rejected),
        (401, NotAllowed),
        (403, NotAllowed),
        (404, UnknownJob),
        (409, Rejected),
        (422, Rejected),
    ],
)
def test_a_refusal_is_told_at_once_in_the_gateways_words(
    gateway: FakeGateway, scaler: DispatcherClient, status: int, error: type[Exception]
) -> None:
    gateway.will(PATH, _error(status, "labels.0: too long", "use a shorter one"))
    with pytest.raises(error, match=r"labels\.0: too long") as caught:
        scaler.request(REQUEST)
    assert getattr(caught.value, "hint", "") == "use a shorter one"
    assert gateway.calls(PATH) == 1


@pytest.mark.parametrize("text", ["<html>no</html>", "[]", '{"error": "no"}', '{"detail": "no"}'])
def test_a_refusal_in_other_words_is_told_too(
    gateway: FakeGateway, scaler: DispatcherClient, text: str
) -> None:
    gateway.will(PATH, httpx.Response(400, text=text))
    with pytest.raises(Rejected, match="HTTP 400 from /v1/requests"):
        scaler.request(REQUEST)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>hello</html>"),
        _ok([]),
        _ok({}),
        _ok({"jobId": "j"}),
        _ok({"jobId": "j", "result": "from-the-future"}),
        _ok({"jobId": 5, "result": "spawning"}),
        _ok({"jobId": "j", "result": "spawning", "state": "unheard-of"}),
    ],
)
def test_an_answer_that_is_none_is_told(
    gateway: FakeGateway, scaler: DispatcherClient, answer: httpx.Response
) -> None:
    gateway.will(PATH, answer)
    with pytest.raises(BadAnswer):
        scaler.request(REQUEST)


def test_the_sealing_key_is_fetched_once_and_again_after_a_while(
    gateway: FakeGateway, scaler: DispatcherClient, fake_time: FakeTime
) -> None:
    gateway.will(PATH, _ok(SPAWNING))
    for _ in range(3):
        scaler.request(REQUEST)
    assert gateway.calls("/v1/sealing-key") == 1
    fake_time.now += 301
    scaler.request(REQUEST)
    assert gateway.calls("/v1/sealing-key") == 2


@pytest.mark.parametrize("answer", [{}, [], {"keyId": "k", "publicKey": "short"}])
def test_a_sealing_key_that_is_none_seals_nothing(
    gateway: FakeGateway, scaler: DispatcherClient, answer: object
) -> None:
    gateway.will("/v1/sealing-key", _ok(answer))
    with pytest.raises(SealingError):
        scaler.request(REQUEST)
    assert gateway.calls(PATH) == 0


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (Payload(()), "no command"),
        (Payload(("true",), stdin="x" * 50_000), "too large"),
        (Payload(("true",), timeout_seconds=float("nan")), "is no JSON"),
    ],
)
def test_what_cannot_be_run_is_not_sent(
    gateway: FakeGateway, scaler: DispatcherClient, payload: Payload, said: str
) -> None:
    with pytest.raises(Rejected, match=said):
        scaler.request(JobRequest(job_id="j", run_id="r", labels=(), payload=payload))
    assert gateway.calls(PATH) == 0


def test_the_largest_payload_the_client_sends_is_one_the_gateway_takes(
    gateway: FakeGateway, scaler: DispatcherClient
) -> None:
    gateway.will(PATH, _ok(SPAWNING))
    payload = Payload(("true",), stdin="x" * 48_900)
    scaler.request(JobRequest(job_id="j", run_id="r", labels=("linux",), payload=payload))
    (body,) = gateway.bodies(PATH)
    parse_request(body)
    assert MAX_SEALED_BYTES - 1024 < len(body["payload"]["sealed"]) <= MAX_SEALED_BYTES


def test_a_request_shows_no_secret() -> None:
    request = JobRequest(
        job_id="j",
        run_id="r",
        labels=(),
        payload=Payload(("hidden",), {"A": "hidden"}, "hidden"),
        registry_credentials=RegistryCredentials("user", "hidden"),
    )
    assert "hidden" not in repr(request)
