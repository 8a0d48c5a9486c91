"""No route is reached without a key, with too much, too slowly or too often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.gateway import gate, limits
from kici_scaler.gateway.access import Access
from kici_scaler.gateway.app import make_http
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.errors import HttpError
from kici_scaler.gateway.gate import MOST_BATCH_BYTES, MOST_BODY_BYTES, WITHOUT_A_KEY, Gate
from kici_scaler.gateway.life import Life
from kici_scaler.gateway.limits import FAILED_LOGINS, Buckets
from kici_scaler.service import keys

KEY = keys.new_token(KeyScope.OPERATOR)
REACHED = 299


METHODS = {"get", "put", "post", "patch", "delete", "head", "options"}


def _every_route() -> Iterator[tuple[str, str]]:
    """Each method and path of the HTTP interface, with something in place of its parameters."""
    described = make_http(cast("Gateway", None), cast("Life", None)).openapi()
    for path, operations in described["paths"].items():
        filled = "/".join("x" if "{" in part else part for part in path.split("/"))
        yield from ((method.upper(), filled) for method in METHODS & set(operations))


ROUTES = sorted({*_every_route(), ("GET", "/v1/openapi.json"), ("GET", "/nowhere")})


def test_all_routes_are_known_here() -> None:
    assert {path for _, path in ROUTES} > {"/metrics", "/v1/requests", *WITHOUT_A_KEY}


async def _inside(scope: Scope, receive: Receive, send: Send) -> None:
    """What is behind the gate: it reads the whole body."""
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await PlainTextResponse("", status_code=REACHED)(scope, receive, send)


class _Threads:
    """Asks nobody: one key is good."""

    async def http(self, _ask: object, _runtime: object, token: str) -> object:
        valid = SimpleNamespace(id="k", name="known", scope=KeyScope.OPERATOR)
        return valid if token == KEY else None


def _gate() -> Gate:
    gateway = SimpleNamespace(
        failed_logins=Buckets(FAILED_LOGINS), threads=_Threads(), runtime=None
    )
    return Gate(_inside, Access(cast("Gateway", gateway)))


def _status(
    gate: Gate, method: str, path: str, *, key: str | None = KEY, content: Any = None,
    headers: dict[str, str] | None = None, address: str = "192.0.2.1",
) -> int:  # fmt: skip
    async def ask() -> int:
        transport = httpx.ASGITransport(_showing_failures(gate), client=(address, 1))
        own = {"Authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://gateway", verify=False
        ) as client:
            answer = await client.request(
                method, path, content=content, headers={**own, **(headers or {})}
            )
            return answer.status_code

    return asyncio.run(ask())


def _showing_failures(gate: Gate) -> Any:
    """The gate with what the application makes of a failure that comes while it reads a body."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await gate(scope, receive, send)
        except HttpError as error:
            await PlainTextResponse("", status_code=error.status)(scope, receive, send)

    return app


def test_no_route_is_reached_without_a_key() -> None:
    strange = keys.new_token(KeyScope.OPERATOR)
    for method, path in ROUTES:
        expected = REACHED if path in WITHOUT_A_KEY else 401
        found = [_status(_gate(), method, path, key=each) for each in (None, strange, KEY)]
        assert found == [expected, expected, REACHED], f"{method} {path}"


def test_no_route_takes_more_than_its_most() -> None:
    too_much = {"Content-Length": str(MOST_BATCH_BYTES + 1)}
    for method, path in ROUTES:
        assert _status(_gate(), method, path, headers=too_much) == 413, f"{method} {path}"


def test_a_body_that_does_not_say_its_size_is_counted() -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * (MOST_BODY_BYTES // 2)

    assert _status(_gate(), "POST", "/v1/requests", content=body()) == 413


def test_no_route_waits_long_for_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "BODY_SECONDS", 0.02)

    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    for method, path in ROUTES:
        assert _status(_gate(), method, path, content=body()) == 408, f"{method} {path}"


def test_one_key_asks_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    few = limits.Rate(per_second=0.001, burst=3)
    monkeypatch.setattr("kici_scaler.gateway.access.KEY_REQUESTS", few)
    front = _gate()

    statuses = [_status(front, "GET", "/v1/status") for _ in range(5)]

    assert statuses == [REACHED] * 3 + [429] * 2


def test_an_address_guesses_so_often_and_no_more() -> None:
    front = _gate()

    statuses = [_status(front, "GET", "/v1/status", key="guess") for _ in range(32)]

    assert statuses[:30] == [401] * 30
    assert statuses[-1] == 429
    assert _status(front, "GET", "/v1/status", address="192.0.2.2") == REACHED
