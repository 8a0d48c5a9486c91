"""What stands in front of every HTTP route: keys, sizes and time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kici_scaler.errors import KiciError
from kici_scaler.gateway import log_context
from kici_scaler.gateway.access import Access
from kici_scaler.gateway.errors import HttpError, http_error
from kici_scaler.gateway.following import FollowingBroken

MOST_BODY_BYTES: Final = 1 << 20
MOST_BATCH_BYTES: Final = 16 << 20
"""A thousand requests with ordinary payloads."""
BATCH_PATH: Final = "/v1/requests/batch"
MOST_CONFIGURATION_BYTES: Final = 8 << 20
"""The largest scaler files that are read, with every default written out."""
RELOAD_PATH: Final = "/v1/config/reload"
BODY_SECONDS: Final = 15.0
"""From the head of a request to the end of its body."""
CLAIM_PATH: Final = "/v1/claims/redeem"
MOST_CLAIM_BYTES: Final = 4 << 10
"""A code and its name, or the form with a key; whoever sends it may be anybody."""
WITHOUT_A_KEY: Final = frozenset({"/healthz", "/readyz", CLAIM_PATH})
"""Whoever redeems a claim has no key yet: the code alone decides."""
PAGES: Final = "/ui"
"""The status page judges by its cookie; every route below it does so itself."""


class Gate:
    """ASGI middleware around the HTTP application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._let_in(scope)
        except KiciError as error:
            told = http_error(error)
            response = JSONResponse(told.body, status_code=told.status, headers=told.headers)
            await response(scope, receive, send)
            return
        # A log that breaks off ends without its last chunk, and so its reader knows.
        with suppress(FollowingBroken):
            await self._app(scope, _Body(receive, _most_bytes(scope)).receive, send)

    async def _let_in(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > _most_bytes(scope):
            raise _too_large(_most_bytes(scope))
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            raise HttpError(400, "bad-request", "there is a zero byte in the address")
        if scope["path"] in WITHOUT_A_KEY or _is_page(scope["path"]):
            return
        shown = headers.get(b"authorization")
        client = scope.get("client")
        caller = await self._access.judge(
            None if shown is None else shown.decode("latin-1"), client[0] if client else ""
        )
        scope.setdefault("state", {})["caller"] = caller
        log_context.bind_key(caller.name)


_SPECIAL: Final = {
    BATCH_PATH: MOST_BATCH_BYTES,
    RELOAD_PATH: MOST_CONFIGURATION_BYTES,
    CLAIM_PATH: MOST_CLAIM_BYTES,
}


def _is_page(path: str) -> bool:
    return path in ("/", PAGES) or path.startswith(f"{PAGES}/")


def _most_bytes(scope: Scope) -> int:
    if _is_page(scope["path"]):
        return MOST_CLAIM_BYTES
    return _SPECIAL.get(scope["path"], MOST_BODY_BYTES)


def _too_large(most: int) -> HttpError:
    return HttpError(
        413,
        "too-large",
        f"the body is larger than {most >> 10} KiB",
        hint="send less at once",
    )


class _Body:
    """A request's body, counted and timed as it comes."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._left = most
        self._most = most
        self._until: float | None = asyncio.get_running_loop().time() + BODY_SECONDS

    async def receive(self) -> Message:
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise HttpError(408, "too-slow", f"no body within {BODY_SECONDS:g} s") from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise _too_large(self._most)
            if not message.get("more_body", False):
                # From now on this only waits for the caller to go away.
                self._until = None
        return message
