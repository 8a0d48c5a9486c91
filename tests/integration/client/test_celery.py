"""The same requests over a real broker, to workers configured as the scaler's are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from config.celery_settings import INTAKE, celery_configuration
from kici_scaler.client import (
    JobRequest,
    Payload,
    Rejected,
    RequestResult,
    RequestState,
    Unanswered,
)
from kici_scaler.client import celery_client as module
from kici_scaler.client.celery_client import CeleryDispatcherClient
from kici_scaler.sealing import Envelope, SealingKeys, generate_key, open_envelope
from tests.support.waiting import free_port

KEYS = SealingKeys((generate_key(),))
PUBLIC = KEYS.newest.public


class BadRequest(Exception):
    """As the scaler names a request that breaks a rule."""


def _job(job_id: str, *labels: str) -> JobRequest:
    return JobRequest(job_id=job_id, run_id="r", labels=labels, payload=Payload(("true",)))


class Scaler:
    """Workers that answer by the labels they are sent; `seen` is what they were told."""

    def __init__(self, redis_url: str) -> None:
        self.seen: list[dict[str, Any]] = []
        self.app = Celery("scaler-in-a-test", set_as_current=False)
        self.app.conf.update(celery_configuration(redis_url, "test"))
        works: dict[str, Callable[..., Any]] = {
            "request_scale": self._one,
            "request_scale_many": self._many,
            "cancel_request": self._cancel,
        }
        for name, work in works.items():
            self.app.task(name=name, ignore_result=False, shared=False)(work)

    def _one(self, *, request: dict[str, Any]) -> dict[str, Any]:
        self.seen.append(request)
        if "raises" in request["labels"]:
            raise BadRequest("labels.0: no")
        if "fails-once" in request["labels"] and len(self.seen) == 1:
            raise RuntimeError("the database is away")
        return self._answer(request)

    def _many(self, *, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.seen += requests
        return [self._answer(each) for each in requests]

    def _cancel(self, *, job_id: str, reason: str = "default") -> dict[str, Any]:
        self.seen.append({"jobId": job_id, "reason": reason})
        return {"jobId": job_id, "state": "cancelled"}

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "bad" in request["labels"]:
            error = {"code": "bad-request", "message": "labels.0: no"}
            return {"jobId": request["jobId"], "error": error}
        return {"jobId": request["jobId"], "result": "at-capacity", "state": "waiting"}

    @contextmanager
    def working(self) -> Iterator[None]:
        """Serve the intake queue in a thread."""
        with start_worker(
            self.app, pool="solo", perform_ping_check=False, queues=INTAKE, loglevel="ERROR"
        ):
            yield


@pytest.fixture
def scaler(redis_url: str) -> Scaler:
    return Scaler(redis_url)


@pytest.fixture
def client(redis_url: str) -> CeleryDispatcherClient:
    return CeleryDispatcherClient.connect(redis_url, lambda: PUBLIC)


def test_a_request_is_answered_and_its_payload_arrives_sealed(
    scaler: Scaler, client: CeleryDispatcherClient
) -> None:
    with scaler.working():
        answer = client.request(_job("j", "linux"))
    assert (answer.result, answer.state) == (RequestResult.AT_CAPACITY, RequestState.WAITING)
    (body,) = scaler.seen
    assert b'"command": ["true"]' in open_envelope(KEYS, Envelope.from_json(body["payload"]))


def test_many_requests_keep_their_order_and_one_bad_one_fails_alone(
    scaler: Scaler, client: CeleryDispatcherClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    with scaler.working():
        answers = client.request_many([_job("a", "x"), _job("b", "bad"), _job("c", "x")])
    assert [(each.job_id, each.result) for each in answers] == [
        ("a", RequestResult.AT_CAPACITY),
        ("b", RequestResult.FAILED),
        ("c", RequestResult.AT_CAPACITY),
    ]
    assert (answers[1].state, answers[1].reason) == (RequestState.REFUSED, "labels.0: no")


def test_a_job_is_called_off(scaler: Scaler, client: CeleryDispatcherClient) -> None:
    with scaler.working():
        assert client.cancel("j", reason="not needed") is RequestState.CANCELLED
        client.cancel("k")
    assert scaler.seen == [
        {"jobId": "j", "reason": "not needed"},
        {"jobId": "k", "reason": "default"},
    ]


@pytest.mark.parametrize("how", ["bad", "raises"])
def test_a_refusal_is_not_repeated(
    scaler: Scaler, client: CeleryDispatcherClient, how: str
) -> None:
    with scaler.working(), pytest.raises(Rejected, match=r"labels\.0: no"):
        client.request(_job("j", how))
    assert len(scaler.seen) == 1


def test_a_failure_that_may_pass_is_repeated_with_the_same_request(
    scaler: Scaler, client: CeleryDispatcherClient
) -> None:
    with scaler.working():
        assert client.request(_job("j", "fails-once")).result is RequestResult.AT_CAPACITY
    assert len(scaler.seen) == 2
    assert scaler.seen[0] == scaler.seen[1]


def test_a_worker_that_comes_late_still_answers(scaler: Scaler, redis_url: str) -> None:
    client = CeleryDispatcherClient.connect(redis_url, PUBLIC, patience=0.5)
    found: list[RequestResult] = []
    asking = threading.Thread(target=lambda: found.append(client.request(_job("j")).result))
    asking.start()
    asking.join(1.5)
    assert asking.is_alive()
    with scaler.working():
        asking.join(20)
    assert found == [RequestResult.AT_CAPACITY]
    assert {each["jobId"] for each in scaler.seen} == {"j"}


@pytest.mark.parametrize("broker", ["nobody works", "nobody listens"])
def test_what_is_never_answered_is_told(redis_url: str, broker: str) -> None:
    url = redis_url if broker == "nobody works" else f"redis://127.0.0.1:{free_port()}/0"
    client = CeleryDispatcherClient.connect(url, PUBLIC, answer_within=1.0, patience=0.4)
    with pytest.raises(Unanswered, match="request_scale was not answered within 1 s"):
        client.request(_job("j", "linux"))
