"""The reservation mutex: keeps contention off the database, and decides nothing.

Not got, lost in the middle or held twice: the database lock behind it gives the same
outcome. Its only effect is that fewer connections queue there.

It rests for a moment after each holder. Requests that need not be decided at once are stored
meanwhile and decided by one pass together: the busier it gets, the less each of them costs. Who is
waited for does not heed the rest.
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
from kici_scaler.service.ports import Patience

log = structlog.get_logger(__name__)

KEY = f"{KEY_PREFIX}reservation-mutex"
TTL_MILLIS = 3_000
LONGEST_WAIT_SECONDS = 0.25
PAUSE_SECONDS = 0.01
REST_MILLIS = 5
"""About as long as a small pass takes: under load the section is used for half of the time."""
MUTE_SECONDS = 2.0
_REST = "rest"
_ACQUIRE = """
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
if redis.call('get', KEYS[1]) ~= ARGV[3] then return 0 end
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
"""The third value is what may be replaced: the rest, or nothing."""
_RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then
  redis.call('set', KEYS[1], ARGV[3], 'PX', ARGV[2])
end
return 0
"""


@dataclass(slots=True)
class RedisMutex:
    """`SET NX PX` with a random token; only its holder releases it."""

    client: redis.Redis
    _muted_until: float = field(default=0.0)

    @contextmanager
    def held(self, patience: Patience = Patience.AT_ONCE) -> Iterator[bool | None]:
        """Try once or for at most a quarter of a second.

        Yields whether it was got; None when the server does not tell.
        """
        token = secrets.token_hex(16)
        got = self._acquire(token, patience)
        try:
            yield got
        finally:
            if got:
                self._release(token)

    def _acquire(self, token: str, patience: Patience) -> bool | None:
        seconds = 0.0 if patience is Patience.NONE else LONGEST_WAIT_SECONDS
        ends = _REST if patience is Patience.AT_ONCE else ""
        give_up = time.monotonic() + seconds
        while time.monotonic() >= self._muted_until:
            try:
                if self.client.eval(_ACQUIRE, 1, KEY, token, TTL_MILLIS, ends):
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
            self.client.eval(_RELEASE, 1, KEY, token, REST_MILLIS, _REST)
        except redis.RedisError as error:
            self._mute(error)

    def _mute(self, error: redis.RedisError) -> None:
        self._muted_until = time.monotonic() + MUTE_SECONDS
        log.warning("reservation mutex not reachable; going on without it", error=str(error))
