"""How many tasks with requests wait for a worker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import redis

from config.celery_settings import INTAKE, KEY_PREFIX

MUTE_SECONDS = 2.0
"""After a failed look, how long nobody looks again."""


@dataclass(slots=True)
class IntakeBacklog:
    """Looks at the intake queue; a broker that does not answer has none for a while."""

    client: redis.Redis
    _muted_until: float = field(default=0.0)

    def __call__(self) -> int:
        """How many wait at this moment."""
        if time.monotonic() < self._muted_until:
            return 0
        try:
            return int(str(self.client.llen(f"{KEY_PREFIX}{INTAKE}")))
        except redis.RedisError:
            self._muted_until = time.monotonic() + MUTE_SECONDS
            return 0
