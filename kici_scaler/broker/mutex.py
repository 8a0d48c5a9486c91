"""The reservation mutex: keeps contention off the database, and decides nothing.

Not got, lost in the middle or held twice: the database lock behind it gives the same
outcome. Its only effect is that fewer connections queue there.

It rests for a moment after each holder. Requests that need not be decided at once are stored
meanwhile and decided by one pass together: the busier it gets, the less each of them costs. The
more wait to be stored, the longer is the rest. Who is waited for does not heed the rest.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis
import structlog

from config.celery_settings import KEY_PREFIX
from kici_scaler.service.ports import Patience, Turn

log = structlog.get_logger(__name__)

KEY = f"{KEY_PREFIX}reservation-mutex"
TTL_MILLIS = 3_000
LONGEST_WAIT_SECONDS = 0.25
PAUSE_SECONDS = 0.01
REST_MILLIS = 1
MORE_FOR_EACH = 2
"""Milliseconds. At 100 requests a second a pass is over before the next comes; were it to rest for
long, half of them would wait for each other. Where they come faster than they are stored, a queue
builds up, and the rest with it."""
LONGEST_REST_MILLIS = 100
"""Long enough to store some dozens, which a pass decides for little more than what one costs."""
MUTE_SECONDS = 2.0
_REST = "rest"
_ACQUIRE = """
local found = redis.call('get', KEYS[1])
if found and found ~= ARGV[3] then
  if found ~= ARGV[4] then return 0 end
  return -math.max(1, redis.call('pttl', KEYS[1]))
end
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
"""The third value is what may be replaced: the rest, or nothing. Answers 1 for got, 0 for held by
another, and of a rest its milliseconds, negative."""
_RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then
  redis.call('set', KEYS[1], ARGV[3], 'PX', ARGV[2])
end
return 0
"""


def rest_millis(backlog: int) -> int:
    """How long the mutex rests while so many requests wait to be stored."""
    return min(LONGEST_REST_MILLIS, REST_MILLIS + MORE_FOR_EACH * backlog)


def _none() -> int:
    return 0


@dataclass(slots=True)
class RedisMutex:
    """`SET NX PX` with a random token; only its holder releases it.

    Args:
        backlog: how many requests wait to be stored.
    """

    client: redis.Redis
    backlog: Callable[[], int] = _none
    _muted_until: float = field(default=0.0)

    @contextmanager
    def held(self, patience: Patience = Patience.AT_ONCE) -> Iterator[Turn]:
        """Try once or for at most a quarter of a second."""
        token = secrets.token_hex(16)
        turn = self._acquire(token, patience)
        try:
            yield turn
        finally:
            if turn.is_mine:
                self._release(token)

    def _acquire(self, token: str, patience: Patience) -> Turn:
        seconds = 0.0 if patience is Patience.NONE else LONGEST_WAIT_SECONDS
        replaces = _REST if patience is Patience.AT_ONCE else ""
        give_up = time.monotonic() + seconds
        while time.monotonic() >= self._muted_until:
            try:
                answer: Any = self.client.eval(_ACQUIRE, 1, KEY, token, TTL_MILLIS, replaces, _REST)
            except redis.RedisError as error:
                self._mute(error)
                return Turn(None)
            if answer == 1:
                return Turn(True)
            if answer < 0:
                return Turn(False, rests_for=-answer / 1000)
            if time.monotonic() + PAUSE_SECONDS > give_up:
                return Turn(False)
            time.sleep(PAUSE_SECONDS)
        return Turn(None)

    def _release(self, token: str) -> None:
        try:
            rest = rest_millis(self.backlog())
            self.client.eval(_RELEASE, 1, KEY, token, rest, _REST)
        except redis.RedisError as error:
            self._mute(error)

    def _mute(self, error: redis.RedisError) -> None:
        self._muted_until = time.monotonic() + MUTE_SECONDS
        log.warning("reservation mutex not reachable; going on without it", error=str(error))
