"""The least that the steps of a life cost: one of each part, as often as it is asked for.

Three tasks (request, start, teardown), four transactions that write a row, and a session
of an agent: a connection to a bare WebSocket server, four short messages each way, and its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import text
from websockets.asyncio.client import connect

from bench import floors
from bench.apart import Apart
from bench.bare_server import BareServer
from bench.empty_tasks import EmptyTasks
from bench.measure import timed_alone
from bench.place import Place
from bench.waiting import wait_until
from kici_scaler.store.engine import make_engine, transaction

TASKS = 3
WRITES = 4
MESSAGES = 4
"""Each way: registration, what it is configured with, the job's offer, and its result."""
AT_ONCE = 64
WRITERS = 8


@dataclass(frozen=True)
class LifeParts:
    """All of them, ready to be done."""

    place: Place
    tasks: EmptyTasks
    url: str
    _writing: Callable[[], object] = field(repr=False)

    def alone(self, repeats: int = 20) -> list[float]:
        """Seconds of the parts of one life, one after the other."""
        floors.make_row(self.place.engine)
        return timed_alone(self._one, repeats=repeats, warm_up=5)

    def _one(self) -> None:
        for _ in range(TASKS):
            self.tasks.round_trip()
        for _ in range(WRITES):
            floors.write_row(self.place.engine)
        asyncio.run(_session(self.url))

    def rate(self, lives: int) -> float:
        """How many lives' sessions and writes the machine does a second, all of them at once.

        Without tasks: those of many lives may be few.
        """
        begun = time.perf_counter()
        with ThreadPoolExecutor(1) as aside:
            played = aside.submit(lambda: asyncio.run(_sessions(self.url, lives)))
            self._writing()
            played.result()
        return lives / (time.perf_counter() - begun)


@contextmanager
def life_parts(place: Place, tasks: EmptyTasks, lives: int) -> Iterator[LifeParts]:
    """On the servers of a place; who writes and who listens are processes of their own."""
    url = place.servers.profile.database_url.get_secret_value()
    with Apart(BareServer) as server, Apart(Writers, url, lives * WRITES) as writers:
        wait_until(lambda: bool(server.ask("port")), "the bare server listens")
        port = server.ask("port")
        yield LifeParts(place, tasks, f"ws://127.0.0.1:{port}", lambda: writers.ask("write"))


async def _session(url: str) -> None:
    async with connect(url, compression=None, ping_interval=None) as socket:
        for _ in range(MESSAGES):
            await socket.send("x" * 200)
            await socket.recv()


async def _sessions(url: str, count: int) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with room:
            await _session(url)

    await asyncio.gather(*(one() for _ in range(count)))


class Writers:
    """A program for `Apart`: threads that write a row a transaction, as many as workers have."""

    def __init__(self, database_url: str, count: int) -> None:
        self._engine = make_engine(database_url, application="bench", pool_size=WRITERS)
        self._count = count
        with transaction(self._engine) as connection:
            connection.execute(text("CREATE TABLE IF NOT EXISTS bench_rows (n integer NOT NULL)"))

    async def run(self) -> None:
        """Wait to be asked."""
        await asyncio.get_running_loop().create_future()

    def write(self) -> None:
        """All of them once."""
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(self._one, range(self._count)))

    def _one(self, number: int) -> None:
        with transaction(self._engine) as connection:
            connection.execute(text("INSERT INTO bench_rows VALUES (:n)"), {"n": number})
