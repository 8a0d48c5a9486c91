"""Lines of a gateway are bound to the request, the connection or the step that they are about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
import structlog
from starlette.types import Message, Receive, Scope, Send

from kici_scaler.gateway import log_context
from kici_scaler.gateway.lines import LineOrigin
from kici_scaler.gateway.link import Link
from kici_scaler.gateway.log_context import RequestIds
from kici_scaler.gateway.session import Session

Bound = Mapping[str, Any]


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _ask(*shown: bytes, fails: bool = False) -> tuple[Bound, Bound, Mapping[bytes, bytes]]:
    """What is bound within a request and after it, and the headers of its answer."""
    within: list[Bound] = []
    answered: list[Message] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        within.append(structlog.contextvars.get_contextvars())
        if fails:
            raise RuntimeError("it broke")
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Message) -> None:
        answered.append(message)

    async def one() -> Bound:
        structlog.contextvars.bind_contextvars(left="of another")
        headers = [(b"x-request-id", each) for each in shown]
        scope = {"type": "http", "method": "GET", "path": "/v1/status", "headers": headers,
                 "query_string": b"token=a-secret"}  # fmt: skip
        with contextlib.suppress(RuntimeError):
            await RequestIds(app)(scope, _nothing, send)
        return structlog.contextvars.get_contextvars()

    after = asyncio.run(one())
    return within[0], after, dict(answered[0]["headers"]) if answered else {}


def test_a_request_has_an_id_that_its_answer_tells_and_leaves_nothing() -> None:
    within, after, headers = _ask()
    assert within == {
        "request_id": headers[b"x-request-id"].decode(), "method": "GET", "path": "/v1/status",
    }  # fmt: skip
    assert after == {}
    assert _ask()[0]["request_id"] != within["request_id"]


def test_the_id_of_a_proxy_is_kept() -> None:
    within, _, headers = _ask(b"f3a1-77.b")
    assert within["request_id"] == "f3a1-77.b"
    assert headers[b"x-request-id"] == b"f3a1-77.b"


@pytest.mark.parametrize("shown", [b"", b"a b", b'"}{', b"x" * 65, b"a\nb", b"\xff"])
def test_an_id_that_is_none_is_replaced(shown: bytes) -> None:
    within, _, headers = _ask(shown)
    assert len(within["request_id"]) == 16
    assert headers[b"x-request-id"] == within["request_id"].encode()


def test_a_request_that_breaks_keeps_its_id_for_the_line_that_tells_of_it() -> None:
    within, after, _ = _ask(fails=True)
    assert after == within


def test_a_step_is_its_agents_whoever_caused_it() -> None:
    seen: list[Bound] = []

    async def step() -> None:
        seen.append(structlog.contextvars.get_contextvars())

    async def work() -> Bound:
        link = Link(_nothing, _never, "")
        session = Session(link, "a-1", 1, LineOrigin("a-1", run_id="r-1", job_id="j-1"))
        # A poll of the gateway may have begun while something else was bound.
        structlog.contextvars.bind_contextvars(agent="a-2", run="r-2")
        session.do("one", step)
        await session.settled()
        session.origin = LineOrigin("a-1")
        session.do("two", step)
        await session.settled()
        return structlog.contextvars.get_contextvars()

    after = asyncio.run(work())
    assert seen == [{"agent": "a-1", "job": "j-1", "run": "r-1"}, {"agent": "a-1"}]
    assert after == {"agent": "a-2", "run": "r-2"}


async def _never(_: Message) -> None:
    raise AssertionError("nothing is sent")


def test_a_connection_is_told_apart_before_it_says_whose_it_is() -> None:
    async def work() -> tuple[Bound, Bound]:
        log_context.begin_connection({"client": ("192.0.2.7", 1234)})
        begun = structlog.contextvars.get_contextvars()
        log_context.bind_agent("a-1")
        known = structlog.contextvars.get_contextvars()
        log_context.end()
        assert structlog.contextvars.get_contextvars() == {}
        return begun, known

    begun, known = asyncio.run(work())
    assert begun == {"connection_id": begun["connection_id"], "address": "192.0.2.7"}
    assert known == {**begun, "agent": "a-1"}
