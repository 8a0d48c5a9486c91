"""How much one agent, key or address may ask for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MOST_REMEMBERED: Final = 10_000
"""Keys or addresses whose use is remembered; the fullest bucket is forgotten first."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second on average, and so many at once."""

    per_second: float
    burst: float


AGENT_MESSAGES: Final = Rate(per_second=200, burst=1_000)
AGENT_BYTES: Final = Rate(per_second=2 << 20, burst=8 << 20)
KEY_REQUESTS: Final = Rate(per_second=500, burst=5_000)
PAGE_REQUESTS: Final = Rate(per_second=20, burst=200)
"""By operator's key: several people may have its status page open."""
FAILED_LOGINS: Final = Rate(per_second=1, burst=30)
"""By address: refused keys and refused agents."""
CLAIMS: Final = Rate(per_second=20, burst=200)
"""By address, which a whole site of machines may share: tries to redeem a claim code."""


class TokenBucket:
    """Counts what is taken; `take` says how long to wait before going on."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._left = rate.burst
        self._at = now

    def left(self, now: float) -> float:
        """How much could be taken at once."""
        grown = self._left + (now - self._at) * self._rate.per_second
        return min(self._rate.burst, grown)

    def take(self, amount: float, now: float) -> float:
        """Take it in any case; the seconds until the bucket is back at nothing owed."""
        self._left = self.left(now) - amount
        self._at = now
        return max(0.0, -self._left / self._rate.per_second)


class Buckets:
    """One bucket for each key or address."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def wait_for(self, name: str) -> float:
        """Seconds until `name` may ask again; 0 when it may now. Takes nothing."""
        bucket = self._buckets.get(name)
        if bucket is None:
            return 0.0
        missing = 1.0 - bucket.left(self._clock())
        return max(0.0, missing / self._rate.per_second)

    def take(self, name: str) -> None:
        """Count one use by `name`."""
        bucket = self._buckets.get(name)
        if bucket is None:
            self._make_room()
            bucket = self._buckets[name] = TokenBucket(self._rate, self._clock())
        bucket.take(1.0, self._clock())

    def _make_room(self) -> None:
        if len(self._buckets) < MOST_REMEMBERED:
            return
        now = self._clock()
        by_fullness = sorted(self._buckets, key=lambda each: -self._buckets[each].left(now))
        for name in by_fullness[: MOST_REMEMBERED // 10]:
            del self._buckets[name]
