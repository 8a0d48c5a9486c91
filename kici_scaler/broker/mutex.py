"""The reservation mutex: keeps contention off the database, and decides nothing.

Not got, lost in the middle or held twice: the database lock behind it gives the same
outcome. Its only effect is that fewer connections queue there.
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
MUTE_SECONDS = 2.0
_RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""


@dataclass(slots=True)
class RedisMutex:
    """`SET NX PX` with a random token; only its holder releases it."""

    client: redis.Redis
    _muted_until: float = field(default=0.0)

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Try for at most a quarter of a second; yields whether it was got."""
        token = secrets.token_hex(16)
        got = self._acquire(token)
        try:
            yield got
        finally:
            if got:
                self._release(token)

    def _acquire(self, token: str) -> bool:
        give_up = time.monotonic() + LONGEST_WAIT_SECONDS
        while time.monotonic() < give_up and time.monotonic() >= self._muted_until:
            try:
                if self.client.set(KEY, token, nx=True, px=TTL_MILLIS):
                    return True
            except redis.RedisError as error:
                self._mute(error)
                return False
            time.sleep(PAUSE_SECONDS)
        return False

    def _release(self, token: str) -> None:
        try:
            self.client.eval(_RELEASE, 1, KEY, token)
        except redis.RedisError as error:
            self._mute(error)

    def _mute(self, error: redis.RedisError) -> None:
        self._muted_until = time.monotonic() + MUTE_SECONDS
        log.warning("reservation mutex not reachable; going on without it", error=str(error))
