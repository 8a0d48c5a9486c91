"""Empty Celery tasks under the settings of the real ones, on a worker like a control worker.

The module is also what that worker loads: `celery --app bench.empty_tasks:app`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import redis
from celery import Celery

from bench.waiting import LONG_PAUSE_SECONDS, PAUSE_SECONDS
from config.celery_settings import KEY_PREFIX, celery_configuration
from config.redis_transport import keep_clients
from kici_scaler.embedded.process import Command, Process, StopStep
from kici_scaler.embedded.programs import CONTROL_CONCURRENCY, SOFT_STOP
from kici_scaler.embedded.roles import WORKER_STOP

QUEUE = "bench"
URL_VARIABLE = "KICI_BENCH_REDIS"
TASK = "bench.empty"
CHAIN, CHAIN_END = "bench.chain", "bench.chain_end"
CHAIN_TIMES = "bench:chain-times"
PATIENCE_SECONDS = 120.0
ROOT = Path(__file__).resolve().parents[1]


def application(redis_url: str) -> Celery:
    """A Celery application with the settings of the real one."""
    keep_clients()
    made = Celery("kici-bench", set_as_current=False)
    made.conf.update(celery_configuration(redis_url, "kici-bench"))
    return made


app = application(os.environ.get(URL_VARIABLE, "redis://"))


@app.task(shared=False, name=TASK, queue=QUEUE, max_retries=0)
def empty(*, number: int) -> int:
    """Do nothing."""
    return number


@app.task(shared=False, name=CHAIN, queue=QUEUE, max_retries=0)
def chain(*, sent: float) -> None:
    """Hand on to one more task."""
    app.send_task(CHAIN_END, kwargs={"sent": sent}, queue=QUEUE, ignore_result=True)


@app.task(shared=False, name=CHAIN_END, queue=QUEUE, max_retries=0)
def chain_end(*, sent: float) -> None:
    """Note how long the chain took, by the machine's clock."""
    with closing(redis.Redis.from_url(app.conf.broker_url)) as client:
        client.rpush(CHAIN_TIMES, time.time() - sent)


class EmptyTasks:
    """Sends empty tasks to the worker that runs them."""

    def __init__(self, sender: Celery, client: redis.Redis) -> None:
        self._sender = sender
        self._client = client

    def round_trip(self) -> None:
        """One task, until its result is here."""
        sent = self._sender.send_task(TASK, kwargs={"number": 0}, queue=QUEUE, ignore_result=False)
        sent.get(timeout=PATIENCE_SECONDS, interval=PAUSE_SECONDS)

    def chains(self, moments: Iterable[None]) -> list[float]:
        """Start a chain of two tasks at each moment; seconds from sending to the second's end."""
        self._client.delete(CHAIN_TIMES)
        count = 0
        for _ in moments:
            self._sender.send_task(
                CHAIN, kwargs={"sent": time.time()}, queue=QUEUE, ignore_result=True
            )
            count += 1
        give_up = time.monotonic() + PATIENCE_SECONDS
        while self._client.llen(CHAIN_TIMES) < count and time.monotonic() < give_up:
            time.sleep(LONG_PAUSE_SECONDS)
        return [float(each) for each in self._client.lrange(CHAIN_TIMES, 0, -1)]

    def burst(self, count: int) -> None:
        """That many tasks one by one, until nothing waits and nothing is unacknowledged."""
        for number in range(count):
            self._sender.send_task(TASK, kwargs={"number": number}, queue=QUEUE, ignore_result=True)
        give_up = time.monotonic() + PATIENCE_SECONDS
        while self._left() and time.monotonic() < give_up:
            time.sleep(LONG_PAUSE_SECONDS)
        if self._left():
            raise TimeoutError(f"{count} empty tasks not done within {PATIENCE_SECONDS:g} s")

    def _left(self) -> int:
        pipe = self._client.pipeline(transaction=True)
        pipe.llen(KEY_PREFIX + QUEUE)
        pipe.hlen(f"{KEY_PREFIX}unacked")
        return sum(pipe.execute())


@contextmanager
def empty_tasks(redis_url: str) -> Iterator[EmptyTasks]:
    """A worker for empty tasks, like a control worker; stopped at the end."""
    program = (
        sys.executable, "-m", "celery", "--quiet", "--app", "bench.empty_tasks:app", "worker",
        "--queues", QUEUE, "--hostname", "bench@%h", "--pool", "prefork",
        "--concurrency", str(CONTROL_CONCURRENCY),
        "--without-gossip", "--without-mingle", "--task-events", "--loglevel", "WARNING",
    )  # fmt: skip
    environment = {
        **os.environ, **SOFT_STOP, URL_VARIABLE: redis_url, "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    process = Process(Command(program, environment, ROOT), lambda _line: None)
    stop: tuple[StopStep, ...] = WORKER_STOP
    try:
        with closing(redis.Redis.from_url(redis_url)) as client:
            tasks = EmptyTasks(application(redis_url), client)
            tasks.round_trip()
            yield tasks
    finally:
        process.stop(stop)
