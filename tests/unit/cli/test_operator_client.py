"""An operator's call is answered, or fails with one sentence."""

from __future__ import annotations

import httpx
import pytest
from pydantic import BaseModel

from kici_scaler.cli.operator_client import OperatorClient, parsed
from kici_scaler.client import BadAnswer, NotAllowed, Unanswered
from kici_scaler.client.transport import Clock


class Shape(BaseModel):
    number: int


def client_of(handler: httpx.MockTransport) -> OperatorClient:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return OperatorClient(
        "http://scaler", "the-key", transport=handler, clock=Clock(lambda: now[0], sleep)
    )


def test_a_list_in_the_query_repeats_its_name() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((str(request.url), request.headers["authorization"]))
        return httpx.Response(200, json=[])

    with client_of(httpx.MockTransport(answer)) as gateway:
        gateway.get("/v1/requests", {"state": ["waiting", "running"], "limit": 5})
    url = "http://scaler/v1/requests?state=waiting&state=running&limit=5"
    assert asked == [(url, "Bearer the-key")]


def test_a_gateway_that_restarts_is_asked_again() -> None:
    answers = iter([httpx.Response(503), httpx.Response(200, json={"number": 1})])
    with client_of(httpx.MockTransport(lambda _request: next(answers))) as gateway:
        assert parsed(Shape, gateway.get("/v1/status")).number == 1


def test_a_gateway_that_stays_away_is_given_up() -> None:
    with (
        client_of(httpx.MockTransport(lambda _request: httpx.Response(503))) as gateway,
        pytest.raises(Unanswered, match="not answered within 5 s"),
    ):
        gateway.get("/v1/status")


def test_lines_are_read_one_by_one() -> None:
    body = b'{"seq": 1}\n\n{"seq": 2}\n'
    with client_of(httpx.MockTransport(lambda _: httpx.Response(200, content=body))) as gateway:
        assert list(gateway.lines("/v1/agents/a/logs")) == [{"seq": 1}, {"seq": 2}]


def test_a_refused_stream_says_why() -> None:
    said = {"error": {"code": "unauthorized", "message": "no valid API key"}}
    with (
        client_of(httpx.MockTransport(lambda _: httpx.Response(401, json=said))) as gateway,
        pytest.raises(NotAllowed, match="no valid API key"),
    ):
        list(gateway.lines("/v1/agents/a/logs"))


def test_an_answer_of_another_version_is_told() -> None:
    with pytest.raises(BadAnswer, match="no Shape") as caught:
        parsed(Shape, {"count": 1})
    assert "another version" in caught.value.hint
