"""A warm hit: from a dispatcher's task to the job on a connected agent, all processes real.

The agents are played here, so that both ends of a hit are told by one clock; the control
worker, the gateway and the servers are the real ones. The pool refills meanwhile, as it does
on a running cluster. `python -m bench.warm_hit` runs it alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import Celery
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from bench import floors, hit_parts, warm_pool
from bench.empty_tasks import application, empty_tasks
from bench.hit_parts import Parts
from bench.measure import Distribution, Unit
from bench.place import Place, servers
from bench.report import written
from bench.results import Floor, Measured, Reach, Run, machine
from config.celery_settings import INTAKE
from kici_scaler.agent.protocol import (
    PROTOCOL_VERSION,
    ConfigAck,
    Facts,
    JobAccepted,
    JobFinished,
    JobFinishedAck,
    JobOffer,
    JobResult,
    JobStart,
    JobStatus,
    Register,
    RegisterAck,
    Shutdown,
    decode_from_gateway,
    encode,
)
from kici_scaler.broker import task_names
from kici_scaler.client import JobRequest, Payload, wire
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.plan import Plan
from kici_scaler.sealing import ensure_keys
from kici_scaler.service.start import StartOrder
from kici_scaler.store import spawns
from kici_scaler.store.engine import transaction

PACED, HITS, WARM_UP = 500, 200, 10
POOL = 50
"""Of hits at a pace, which is refilled as they take from it."""
PAUSE_SECONDS = 0.03
PARTS = "task + wake-up + 3 transactions + echo"
PATIENCE_SECONDS = 30.0
FACTS = Facts("linux", "x64", "bench", os.getpid(), "0")
DONE = JobResult(JobStatus.SUCCEEDED, started_at=1, finished_at=2, exit_code=0)


class Fleet:
    """Connected agents that wait for a job, and when each job reached one of them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._starts: dict[str, Future[float]] = {}
        self._ready = threading.Semaphore(0)

    def connect(self, orders: Sequence[StartOrder]) -> None:
        """Have an agent for each of these register; returns once all did."""
        for order in orders:
            self._run(self._play(order))
        for _ in orders:
            assert self._ready.acquire(timeout=PATIENCE_SECONDS), "not every agent registered"

    def expect(self, job_id: str) -> Future[float]:
        """When that job will have reached its agent, by `perf_counter`."""
        return self._starts.setdefault(job_id, Future())

    def close(self) -> None:
        """Drop every connection."""
        asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result(PATIENCE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _drop(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.wait(others or {asyncio.ensure_future(asyncio.sleep(0))})

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _play(self, order: StartOrder) -> None:
        try:
            async with connect(self._url, compression=None, ping_interval=None) as link:
                await link.send(encode(_introduction(order)))
                await self._converse(link)
        except ConnectionClosed:
            return

    async def _converse(self, link: ClientConnection) -> None:
        async for message in link:
            match decode_from_gateway(message):
                case RegisterAck():
                    await link.send(encode(ConfigAck()))
                    self._ready.release()
                case JobOffer(job_id=job_id):
                    await link.send(encode(JobAccepted(job_id)))
                case JobStart(job_id=job_id):
                    self.expect(job_id).set_result(time.perf_counter())
                    await link.send(encode(JobFinished(job_id, DONE)))
                case JobFinishedAck() | Shutdown():
                    return


def _introduction(order: StartOrder) -> Register:
    return Register(
        protocol=PROTOCOL_VERSION,
        agent_id=order.row.agent_id,
        labels=order.row.agent_labels,
        connection=1,
        facts=FACTS,
        token=order.agent_token,
    )


@dataclass(frozen=True)
class Scene:
    """A filled pool, and a dispatcher."""

    place: Place
    fleet: Fleet
    dispatcher: Celery = field(repr=False)
    seal_keys: Path

    def hit(self, number: int) -> float:
        """Seconds from the dispatcher's call to the job on its agent."""
        job_id = f"hit-{number}"
        key = ensure_keys(self.seal_keys).newest.public
        request = JobRequest(
            job_id=job_id, run_id="bench", labels=warm_pool.LABELS, payload=Payload(("true",))
        )
        body = wire.request_body(request, key)
        reached = self.fleet.expect(job_id)
        begun = time.perf_counter()
        self.dispatcher.send_task(
            task_names.REQUEST_SCALE, kwargs={"request": body}, queue=INTAKE, ignore_result=True
        )
        return reached.result(PATIENCE_SECONDS) - begun

    def tend(self) -> None:
        """What the backend worker does, and the agents that it starts; none runs here."""
        self.fleet.connect(warm_pool.tend(self.place))


@contextmanager
def _scene(pool: int) -> Iterator[Scene]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kici-bench-")))
        place = stack.enter_context(servers(1, slots=1_000))
        plan = Plan(
            roles=("control", "gateway"),
            database_url=place.servers.profile.database_url.get_secret_value(),
            redis_url=place.redis_url,
            environment={"KICI_LOG_LEVEL": "WARNING"},
        )
        profile = stack.enter_context(Installation(plan, folder / "roles")).profile
        address = str(profile.gateway_url).replace("http://", "ws://")
        fleet = stack.enter_context(closing(Fleet(f"{address}/v1/agents")))
        fleet.connect(warm_pool.started(place, pool))
        yield Scene(place, fleet, application(place.redis_url), profile.seal_keys_path)


def figures() -> Iterator[Measured]:
    """Hits at a pace, each beside what its parts cost at that moment, and hits without a pause."""
    for pool, measure in ((POOL, _at_a_pace), (HITS + WARM_UP, _without_a_pause)):
        with (
            _scene(pool) as scene,
            empty_tasks(scene.place.redis_url) as tasks,
            hit_parts.parts(scene.place, tasks) as parts,
        ):
            yield from measure(scene, parts)
            with transaction(scene.place.engine) as connection:
                left = len(spawns.live(connection, limit=1))
            assert left, "the pool was refilled meanwhile"


def _at_a_pace(scene: Scene, parts: Parts) -> Iterator[Measured]:
    """Hits and floors in turn, each after the same pause.

    A loop that does nothing else finds its code and data in the processor's caches; a job that
    comes while the machine rests does not, and neither shall what it is held against. The pool is
    refilled meanwhile: its passes come when they come, what a backend does is done between.
    """
    hits, floor = [], []
    for turn in range(WARM_UP + PACED):
        scene.tend()
        time.sleep(PAUSE_SECONDS)
        hit = scene.hit(turn)
        scene.tend()
        time.sleep(PAUSE_SECONDS)
        least = parts.sample()
        if turn >= WARM_UP:
            hits.append(hit)
            floor.append(least)
    for share, name in ((0.5, "warm hit"), (0.99, "warm hit, p99")):
        yield Measured(
            name,
            "a dispatcher's task until the job is on an agent that was connected before",
            Unit.SECONDS,
            Distribution.of(hits),
            floor=Floor(f"{PARTS}, in turn with the hits", Distribution.of(floor)),
            reach=Reach(1.5, of_floor=True, share=share),
        )


def _without_a_pause(scene: Scene, parts: Parts) -> Iterator[Measured]:
    """One right after the other: each meets the refill and the finish of the one before."""
    with floors.around(PARTS, lambda: [parts.sample() for _ in range(HITS // 2)]) as floor:
        hits = [scene.hit(number) for number in range(WARM_UP + HITS)][WARM_UP:]
    yield Measured(
        "warm hits without a pause",
        "the same, the next as soon as the one before is on its agent; the floor likewise",
        Unit.SECONDS,
        Distribution.of(hits),
        floor=floor.floor(),
    )


if __name__ == "__main__":
    run = Run(machine(), list(figures()))
    print(written(run))
    print(json.dumps(run.as_json(), indent=1))
