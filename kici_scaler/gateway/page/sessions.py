"""Who looks at the page: a key is shown once, a signed cookie stands for it afterwards.

The cookie holds the key's id, an expiry and a signature by a secret derived from the sealing
keys, so any gateway can judge it and none stores it. The key itself is looked up each time
(believed for seconds), so a session ends with its key. Scripts cannot read the cookie, other
sites cannot send it, and no route but the page's own gets it.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Final

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.gateway.access import REMEMBERED_SECONDS, Caller
from kici_scaler.gateway.core import TRANSIENT, Gateway
from kici_scaler.gateway.errors import HttpError, try_later
from kici_scaler.gateway.gate import PAGES
from kici_scaler.gateway.limits import PAGE_REQUESTS, Buckets
from kici_scaler.service import keys

COOKIE: Final = "kici_page"
PATH: Final = PAGES
SESSION_SECONDS: Final = 12 * 3_600
"""A working day; the key has to be shown again then."""
MOST_REMEMBERED: Final = 1_000
_PURPOSE: Final = b"kici-scaler page session 1"


class PageSessions:
    """Issues and judges the cookies of one cluster."""

    def __init__(self, gateway: Gateway, clock: Callable[[], float] = time.time) -> None:
        self._gateway = gateway
        self._clock = clock
        self._secrets = [
            hmac.digest(key.private_key, _PURPOSE, sha256) for key in reversed(gateway.keys.keys)
        ]
        self._known: dict[str, tuple[float, Caller]] = {}
        self._uses = Buckets(PAGE_REQUESTS)

    def issue(self, caller: Caller) -> str:
        """The value of the cookie that stands for a key from now on."""
        text = f"{caller.key_id}.{int(self._clock()) + SESSION_SECONDS}"
        return f"{text}.{_signature(self._secrets[0], text)}"

    async def judge(self, cookie_header: str | None) -> Caller | None:
        """The operator behind a request's cookies; None for anybody else.

        Raises:
            HttpError: 429 for too many requests, 503 when it could not be told.
        """
        key_id = self._key_id(_cookie(cookie_header))
        if key_id is None:
            return None
        caller = await self._caller(key_id)
        if caller is None or not caller.may(KeyScope.OPERATOR):
            return None
        if (wait := self._uses.wait_for(key_id)) > 0:
            raise HttpError(429, "too-many-requests", "too many requests", retry_after=wait)
        self._uses.take(key_id)
        return caller

    def _key_id(self, value: str) -> str | None:
        text, _, signature = value.rpartition(".")
        key_id, _, expiry = text.partition(".")
        given = signature.encode()
        signed = [
            hmac.compare_digest(_signature(secret, text).encode(), given)
            for secret in self._secrets
        ]
        if not any(signed) or not expiry.isdecimal() or int(expiry) <= self._clock():
            return None
        return key_id

    async def _caller(self, key_id: str) -> Caller | None:
        known = self._known.get(key_id)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        gateway = self._gateway
        try:
            row = await gateway.threads.http(keys.still_valid, gateway.runtime, key_id)
        except TRANSIENT as error:
            raise try_later("the database could not be asked whether the key is valid") from error
        if row is None:
            self._known.pop(key_id, None)
            return None
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        caller = Caller(row.id, row.name, row.scope)
        self._known[key_id] = (time.monotonic() + REMEMBERED_SECONDS, caller)
        return caller


def _cookie(header: str | None) -> str:
    """The value of the page's cookie; '' without one."""
    try:
        found = SimpleCookie(header or "").get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _signature(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode(), sha256).hexdigest()
