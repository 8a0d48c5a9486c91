"""Who may ask for what over HTTP: keys, their scopes, and how often each may ask.

Everything is judged before a request's body is read, so a stranger costs little.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.gateway.core import TRANSIENT, Gateway
from kici_scaler.gateway.errors import HttpError, try_later
from kici_scaler.gateway.limits import KEY_REQUESTS, Buckets
from kici_scaler.service import keys
from kici_scaler.store.api_keys import ApiKeyRow

REMEMBERED_SECONDS: Final = 5.0
"""How long a key that was looked up is believed; a revoked one works no longer than this."""
MOST_REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Caller:
    """A key that was shown and is valid."""

    key_id: str
    name: str
    scope: KeyScope

    @property
    def actor(self) -> str:
        """How the audit names it."""
        return f"key {self.name}"

    def may(self, scope: KeyScope) -> bool:
        """Whether it is good for what `scope` is good for."""
        return self.scope is KeyScope.OPERATOR or self.scope is scope


class Access:
    """Judges callers of one gateway.

    Guessing makes an address wait, but nobody who shares it (behind a proxy, say) and
    showed a good key before.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._known: dict[bytes, tuple[float, Caller]] = {}
        """Keys that were good when they were last looked up, and until when that is believed."""
        self._asked: dict[bytes, asyncio.Future[Caller | None]] = {}
        self._uses = Buckets(KEY_REQUESTS)

    async def judge(self, authorization: str | None, address: str) -> Caller:
        """The caller behind a request's header.

        Raises:
            HttpError: 401 without a valid key, 429 for too many requests, 503 when it
                could not be told.
        """
        token = _shown_token(authorization)
        fingerprint = keys.hashed(token)
        failures = self._gateway.failed_logins
        if fingerprint not in self._known and (wait := failures.wait_for(address)) > 0:
            raise HttpError(
                429, "too-many-failures", f"too many wrong keys from {address}", retry_after=wait
            )
        caller = await self._caller(fingerprint, token)
        if caller is None:
            failures.take(address)
            raise HttpError(
                401,
                "unauthorized",
                "no valid API key",
                hint="send `Authorization: Bearer KEY`; `kici-scaler keys create` makes one",
            )
        if (wait := self._uses.wait_for(caller.key_id)) > 0:
            raise HttpError(
                429, "too-many-requests", f"too many requests with key {caller.name}",
                hint="send several requests at once with /v1/requests/batch", retry_after=wait,
            )  # fmt: skip
        self._uses.take(caller.key_id)
        return caller

    async def _caller(self, fingerprint: bytes, token: str) -> Caller | None:
        if not keys.looks_like_a_key(token):
            return None
        known = self._known.get(fingerprint)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        return await self._look_up(fingerprint, token)

    async def _look_up(self, fingerprint: bytes, token: str) -> Caller | None:
        """Ask the database; requests that come with the same key meanwhile wait for it."""
        if (asked := self._asked.get(fingerprint)) is not None:
            return await asyncio.shield(asked)
        answer = self._asked[fingerprint] = asyncio.ensure_future(self._ask(fingerprint, token))
        answer.add_done_callback(lambda _: self._asked.pop(fingerprint, None))
        return await asyncio.shield(answer)

    async def _ask(self, fingerprint: bytes, token: str) -> Caller | None:
        gateway = self._gateway
        try:
            row = await gateway.threads.http(keys.authenticate, gateway.runtime, token)
        except TRANSIENT as error:
            raise try_later("the database could not be asked whether the key is valid") from error
        if row is None:
            self._known.pop(fingerprint, None)
            return None
        return self._remember(fingerprint, row)

    def _remember(self, fingerprint: bytes, row: ApiKeyRow) -> Caller:
        caller = Caller(row.id, row.name, row.scope)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[fingerprint] = (time.monotonic() + REMEMBERED_SECONDS, caller)
        return caller


def _shown_token(authorization: str | None) -> str:
    """The bearer token of a header; '' without one."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


_BEARER = HTTPBearer(auto_error=False, description="An API key of `kici-scaler keys create`.")


def _caller(
    request: Request,
    _shown: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
) -> Caller:
    """The caller that the gate in front of the routes let through."""
    caller: Caller = request.state.caller
    return caller


def _operator(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return _with(KeyScope.OPERATOR, caller)


def _dispatcher(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return _with(KeyScope.DISPATCHER, caller)


def _with(scope: KeyScope, caller: Caller) -> Caller:
    if not caller.may(scope):
        raise HttpError(
            403,
            "forbidden",
            f"key {caller.name} of scope {caller.scope} may not do this",
            hint=f"use a key of scope {scope}",
        )
    return caller


AsOperator = Annotated[Caller, Depends(_operator)]
"""A route's caller with a key of scope operator."""
AsDispatcher = Annotated[Caller, Depends(_dispatcher)]
"""A route's caller with a key of scope dispatcher or operator."""
