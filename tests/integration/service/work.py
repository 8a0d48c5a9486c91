"""What the processes of a test do: they submit, pass and cancel like any worker of production."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from kici_scaler.broker.mutex import RedisMutex
from kici_scaler.service import admit, request
from kici_scaler.service.answers import Answer
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import NoMutex, Runtime
from kici_scaler.store.engine import Contended, DatabaseUnreachable, make_engine

PAUSE = threading.Event()
"""Never set; a caller that was refused waits for it a moment before it asks again."""
ENVELOPE = {"keyId": "key", "sealed": "c2VhbGVk"}


@dataclass(frozen=True)
class Servers:
    """Where a process works; without a Redis there is no mutex."""

    database_url: str
    redis_url: str | None = None


def body(job: str, *labels: str, cpus: float | None = None, **more: Any) -> dict[str, Any]:
    """A scale request as a dispatcher sends it."""
    resources = None if cpus is None else {"cpus": cpus}
    return {
        "jobId": job,
        "runId": f"run-of-{job}",
        "labels": list(labels),
        "resources": resources,
        "payload": ENVELOPE,
        **more,
    }


@contextmanager
def runtime(servers: Servers, owner: str = "") -> Iterator[Runtime]:
    """A runtime of this process's own."""
    engine = make_engine(servers.database_url, application="work", pool_size=2)
    mutex = RedisMutex(_client(servers.redis_url)) if servers.redis_url else NoMutex()
    try:
        yield Runtime(engine=engine, owner=owner or f"work/{os.getpid()}", mutex=mutex)
    finally:
        engine.dispose()


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url, socket_timeout=2, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
    )


def submit(
    servers: Servers, bodies: Sequence[Mapping[str, Any]], *, seed: int = 0, passes: bool = True
) -> list[Answer]:
    """Submit in batches of changing size, and now and then run a pass in between."""
    chance = random.Random(seed)
    left, answers = list(bodies), []
    with runtime(servers) as its:
        while left:
            size = chance.choice([1, 1, 2, 5, 20])
            batch, left = left[:size], left[size:]
            answers += until_answered(its, batch)
            if passes and chance.random() < 0.2:
                run_pass(its)
    return answers


def until_answered(its: Runtime, bodies: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Ask again until there is an answer, as every caller does."""
    while True:
        try:
            return request.submit(its, [parse_request(each) for each in bodies])
        except (Contended, DatabaseUnreachable):
            PAUSE.wait(0.02)


def run_pass(its: Runtime) -> None:
    """Decide what waits, unless another is doing so, or the connection is lost meanwhile."""
    with suppress(Contended, DatabaseUnreachable):
        admit.run_pass(its)


def cancel(servers: Servers, jobs: Sequence[str]) -> list[str]:
    """Call jobs off; the states after that."""
    states = []
    with runtime(servers) as its:
        for job in jobs:
            try:
                states.append(request.cancel(its, job).value)
            except Contended:
                states.append("contended")
    return states


def fresh_processes() -> ForkServerContext:
    """Makes processes that share nothing with the test, and have everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def ready() -> int:
    """The process that answers, once it is there and has imported everything."""
    return os.getpid()
