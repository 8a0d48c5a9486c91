"""Wake-ups: "you have something to tell this agent", published to one gateway incarnation.

A wake-up that is lost costs one period of the gateway's own poll and nothing else, so
nothing here is stored, confirmed or repeated. One may say which job the agent is to be
offered, which spares the gateway to look it up: an offer is a question, and whether the agent
gets the job is decided where its answer is stored.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Final

import redis
import redis.asyncio
import structlog

from config.celery_settings import KEY_PREFIX

log = structlog.get_logger(__name__)

_SILENCE_SECONDS: Final = 5.0
"""After this long without a message the connection is checked."""
_LONGEST_PAUSE_SECONDS: Final = 5.0
_OFFER: Final = "\n"
"""What offers begin with and no agent's id does: agents may choose theirs, but printable ones."""


def channel_of(incarnation: str) -> str:
    """The channel that only this start of a gateway listens to."""
    return f"{KEY_PREFIX}gateway:{incarnation}"


@dataclass(frozen=True, slots=True)
class Wakeup:
    """An agent that is to be told something; with a job, that this job is offered to it."""

    agent_id: str
    job_id: str | None = None
    run_id: str = ""

    def encoded(self) -> str:
        """As it is published; without a job the bare id, which every version understands."""
        if self.job_id is None:
            return self.agent_id
        return _OFFER + json.dumps([self.agent_id, self.job_id, self.run_id])

    @classmethod
    def decoded(cls, text: str) -> Wakeup:
        """From what was published; what is no offer is taken for an agent's id."""
        if not text.startswith(_OFFER):
            return cls(text)
        try:
            agent_id, job_id, run_id = json.loads(text)
        except (ValueError, TypeError):
            return cls(text)
        return cls(str(agent_id), str(job_id), str(run_id))


def publish(client: redis.Redis, wakeups: Iterable[tuple[str, Wakeup]]) -> None:
    """Wake gateways by their incarnation, in one round trip.

    Raises:
        redis.RedisError: Redis did not answer; the gateways' own polls make good.
    """
    with client.pipeline(transaction=False) as pipeline:
        for incarnation, wakeup in wakeups:
            pipeline.publish(channel_of(incarnation), wakeup.encoded())
        pipeline.execute()


async def listen(
    client: redis.asyncio.Redis, incarnation: str
) -> AsyncGenerator[Wakeup | None, None]:
    """Wake-ups as they are published; never ends and never raises for a lost Redis.

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
                        yield Wakeup.decoded(message["data"].decode())
        except (redis.RedisError, OSError) as error:
            failures += 1
            if failures == 1:
                log.warning("wake-ups not reachable; polling goes on", error=str(error))
            pause = min(_LONGEST_PAUSE_SECONDS, 0.1 * 2 ** min(failures, 8))
            await asyncio.sleep(random.uniform(pause / 2, pause))
