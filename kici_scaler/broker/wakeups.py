"""Wake-ups: "you have something to tell this agent", published to one gateway incarnation.

A wake-up that is lost costs one period of the gateway's own poll and nothing else, so
nothing here is stored, confirmed or repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable
from typing import Final

import redis
import redis.asyncio
import structlog

from config.celery_settings import KEY_PREFIX

log = structlog.get_logger(__name__)

_SILENCE_SECONDS: Final = 5.0
"""After this long without a message the connection is checked."""
_LONGEST_PAUSE_SECONDS: Final = 5.0


def channel_of(incarnation: str) -> str:
    """The channel that only this start of a gateway listens to."""
    return f"{KEY_PREFIX}gateway:{incarnation}"


def publish(client: redis.Redis, wakeups: Iterable[tuple[str, str]]) -> None:
    """Wake gateways (incarnation, agent id), in one round trip.

    Raises:
        redis.RedisError: Redis did not answer; the gateways' own polls make good.
    """
    with client.pipeline(transaction=False) as pipeline:
        for incarnation, agent_id in wakeups:
            pipeline.publish(channel_of(incarnation), agent_id)
        pipeline.execute()


async def listen(client: redis.asyncio.Redis, incarnation: str) -> AsyncGenerator[str | None, None]:
    """Agent ids as they are published; never ends and never raises for a lost Redis.

    Yields None after each (re)subscription: what was published before that went unheard.
    """
    failures = 0
    while True:
        try:
            async with client.pubsub() as subscription:
                await subscription.subscribe(channel_of(incarnation))
                while True:
                    message = await subscription.get_message(timeout=_SILENCE_SECONDS)
                    if message is None:
                        await subscription.ping()
                    elif message["type"] == "subscribe":
                        failures = 0
                        yield None
                    elif message["type"] == "message":
                        yield message["data"].decode()
        except (redis.RedisError, OSError) as error:
            failures += 1
            if failures == 1:
                log.warning("wake-ups not reachable; polling goes on", error=str(error))
            pause = min(_LONGEST_PAUSE_SECONDS, 0.1 * 2 ** min(failures, 8))
            await asyncio.sleep(random.uniform(pause / 2, pause))
