"""Floors: the least that a figure's building blocks cost here, measured around each figure.

Half of a floor's samples are taken right before its figure and half right after, so that a
machine that others keep busy slows both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import redis
from sqlalchemy import Engine, text

from bench import echo
from bench.empty_tasks import EmptyTasks, empty_tasks
from bench.measure import Distribution, Unit, timed, timed_alone
from bench.place import servers
from bench.results import Floor, Measured
from kici_scaler.store.engine import transaction


@dataclass
class Surrounding:
    """The samples taken around a figure."""

    name: str
    samples: list[float] = field(default_factory=list)

    def floor(self, times: float = 1.0) -> Floor:
        """What the figure is held against; ask once the figure is measured."""
        return Floor(self.name, Distribution.of(self.samples), times)

    def measured(self, what: str) -> Measured:
        """The floor as a figure of its own."""
        return Measured(f"floor: {self.name}", what, Unit.SECONDS, Distribution.of(self.samples))


@contextmanager
def around(name: str, sample: Callable[[], list[float]]) -> Iterator[Surrounding]:
    """Sample a floor before and after what is measured inside."""
    taken = Surrounding(name, sample())
    yield taken
    taken.samples += sample()


EMPTY_TRANSACTION = "empty transaction"
WRITTEN_ROW = "transaction that writes one row"
ROUND_TRIP = "empty task round trip"


def empty_transactions(engine: Engine, repeats: int = 200) -> list[float]:
    """BEGIN, `SELECT 1`, COMMIT, on a pooled connection, as every step here does it."""

    def work() -> None:
        with transaction(engine) as connection:
            connection.execute(text("SELECT 1"))

    return timed_alone(work, repeats=repeats, warm_up=20)


def written_rows(engine: Engine, repeats: int = 50) -> list[float]:
    """The same with one row updated, hence one flush to the disk."""
    make_row(engine)
    return timed_alone(lambda: write_row(engine), repeats=repeats, warm_up=5)


def make_row(engine: Engine) -> None:
    """Have the row that `write_row` updates."""
    with transaction(engine) as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS bench_floor (n integer NOT NULL)"))
        connection.execute(text("INSERT INTO bench_floor SELECT 0 WHERE NOT EXISTS"
                                " (SELECT FROM bench_floor)"))  # fmt: skip


def write_row(engine: Engine) -> None:
    """One such transaction."""
    with transaction(engine) as connection:
        connection.execute(text("UPDATE bench_floor SET n = n + 1"))


def set_nx(client: redis.Redis, repeats: int = 200) -> list[float]:
    """Redis `SET NX PX` and the `DEL` that makes room for the next: one lock taken and released."""

    def work() -> None:
        client.set("bench:floor", "1", nx=True, px=3_000)
        client.delete("bench:floor")

    return timed_alone(work, repeats=repeats, warm_up=20)


def empty_round_trips(tasks: EmptyTasks, repeats: int = 50) -> list[float]:
    """Send one empty task and wait for its result."""
    return timed_alone(tasks.round_trip, repeats=repeats, warm_up=10)


def empty_bursts(tasks: EmptyTasks, count: int, repeats: int = 1) -> list[float]:
    """Send that many empty tasks one by one; until the last one is done and acknowledged."""
    return timed(tasks.burst, prepare=lambda: count, repeats=repeats, warm_up=0)


def figures() -> Iterator[Measured]:
    """Every floor by itself, on servers that do nothing else."""
    with servers(1) as place, empty_tasks(place.redis_url) as tasks:
        engine = place.engine
        samples: tuple[tuple[str, str, Callable[[], list[float]]], ...] = (
            (EMPTY_TRANSACTION, "BEGIN, SELECT 1, COMMIT", lambda: empty_transactions(engine)),
            (WRITTEN_ROW, "one row updated, and flushed", lambda: written_rows(engine)),
            ("Redis SET NX and DEL", "a lock taken and released", lambda: set_nx(place.redis)),
            (ROUND_TRIP, "until its result is back", lambda: empty_round_trips(tasks)),
            ("1,000 empty tasks", "one by one, until the last one is acknowledged",
             lambda: empty_bursts(tasks, 1_000, 3)),
            ("WebSocket echo", "both ends in one process", web_socket_echoes),
        )  # fmt: skip
        for name, what, sample in samples:
            yield Surrounding(name, sample()).measured(what)


def web_socket_echoes(repeats: int = 200) -> list[float]:
    """One short text there and back over a WebSocket, both ends in this process."""

    async def measure() -> list[float]:
        async with echo.connected() as socket:
            return [await echo.there_and_back(socket) for _ in range(20 + repeats)][20:]

    return asyncio.run(measure())
