"""The reservation mutex: keeps contention off the database, and decides nothing.

Not got, lost in the middle or held twice: the database lock behind it gives the same
outcome. Its only effect is that fewer connections queue there.

It rests for a moment after each holder. What is asked for meanwhile is stored and decided by one
pass together, so that the busier it gets, the less each request costs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import redis
import structlog

from config.celery_settings import KEY_PREFIX

log = structlog.get_logger(__name__)

KEY = f"{KEY_PREFIX}reservation-mutex"
TTL_MILLIS = 3_000
LONGEST_WAIT_SECONDS = 0.25
PAUSE_SECONDS = 0.01
REST_MILLIS = 10
"""Twice as long as a small pass takes: under load the section is used for a third of the time."""
MUTE_SECONDS = 2.0
_RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('pexpire', KEYS[1], ARGV[2]) end
return 0
"""


@dataclass(slots=True)
class RedisMutex:
    """`SET NX PX` with a random token; only its holder releases it."""

    client: redis.Redis
    _muted_until: float = field(default=0.0)

    @contextmanager
    def held(self, *, patient: bool = True) -> Iterator[bool | None]:
        """Try for at most a quarter of a second, or once.

        Yields whether it was got; None when the server does not tell.
        """
        token = secrets.token_hex(16)
        got = self._acquire(token, LONGEST_WAIT_SECONDS if patient else 0.0)
        try:
            yield got
        finally:
            if got:
                self._release(token)

    def _acquire(self, token: str, seconds: float) -> bool | None:
        give_up = time.monotonic() + seconds
        while time.monotonic() >= self._muted_until:
            try:
                if self.client.set(KEY, token, nx=True, px=TTL_MILLIS):
                    return True
            except redis.RedisError as error:
                self._mute(error)
                return None
            if time.monotonic() + PAUSE_SECONDS > give_up:
                return False
            time.sleep(PAUSE_SECONDS)
        return None

    def _release(self, token: str) -> None:
        try:
            self.client.eval(_RELEASE, 1, KEY, token, REST_MILLIS)
        except redis.RedisError as error:
            self._mute(error)

    def _mute(self, error: redis.RedisError) -> None:
        self._muted_until = time.monotonic() + MUTE_SECONDS
        log.warning("reservation mutex not reachable; going on without it", error=str(error))
