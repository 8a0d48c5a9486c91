"""Admission alone: the section, usage, the decision and the reservations, in one commit."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from bench import floors
from bench.measure import Distribution, Unit, timed_by
from bench.place import Place, servers
from bench.population import forget_undecided, populate, requests
from bench.processor import clock_of, database_session
from bench.results import Measured, Reach
from kici_scaler.service import admit
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import requests as request_rows
from kici_scaler.store.engine import transaction

BATCH, LIVE, SCALERS = 500, 10_000, 20


def figures() -> Iterator[Measured]:
    """500 waiting requests a batch, and one alone, among 10,000 live agents."""
    with servers(SCALERS) as place:
        populate(place, LIVE, scalers=SCALERS)
        yield from _batches(place)
        yield from _alone(place)


def _batches(place: Place) -> Iterator[Measured]:
    wall, processor = passes(place, BATCH, repeats=20, vacuums=True)
    yield Measured(
        "admission, a batch",
        f"{BATCH} waiting requests decided and reserved at once, {LIVE:,} live agents",
        Unit.PER_SECOND,
        Distribution.of([BATCH / seconds for seconds in wall]),
        reach=Reach(15_000, at_least=True),
    )
    yield _processor("admission, a batch", processor)


def _alone(place: Place) -> Iterator[Measured]:
    engine = place.engine
    place.vacuum()
    with (
        floors.around(floors.EMPTY_TRANSACTION, lambda: floors.empty_transactions(engine)) as empty,
        floors.around(floors.WRITTEN_ROW, lambda: floors.written_rows(engine)) as written,
    ):
        wall, processor = passes(place, 1, repeats=60)
    yield empty.measured("BEGIN, SELECT 1, COMMIT on a pooled connection")
    yield written.measured("the same with one row updated, and flushed")
    spread = Distribution.of(wall)
    yield Measured(
        "admission, one alone",
        f"one waiting request decided and reserved, {LIVE:,} live agents",
        Unit.SECONDS,
        spread,
        floor=empty.floor(),
        reach=Reach(5, of_floor=True),
        details={
            "written rows it takes the time of": round(spread.p50 / written.floor().median, 2)
        },
    )
    yield _processor("admission, one alone", processor)


def _processor(name: str, samples: list[float]) -> Measured:
    return Measured(
        f"{name}: processor",
        "processor time of it, here and in the database's session",
        Unit.SECONDS,
        Distribution.of(samples),
    )


def passes(
    place: Place, size: int, *, repeats: int, vacuums: bool = False
) -> tuple[list[float], list[float]]:
    """Seconds, on the wall and of the processor, of passes over that many waiting requests.

    Args:
        vacuums: where the repetition before leaves so much dead that what lives is not all that
            is read. Plans are made anew after it, so not where hardly anything is.
    """
    numbers = itertools.count()
    runtime = Runtime(place.engine, "bench")

    def prepare() -> None:
        forget_undecided(place)
        if vacuums:
            place.vacuum()
        with transaction(place.engine) as connection:
            rows = requests(f"size-{size}-{next(numbers)}", size, scalers=SCALERS)
            request_rows.insert(connection, rows)

    def work(_: None) -> None:
        done = admit.run_pass(runtime)
        assert done.admitted == size, done

    clocks = (time.perf_counter, clock_of([database_session(place.engine)]))
    wall, processor = timed_by(clocks, work, prepare=prepare, repeats=repeats, warm_up=5)
    return wall, processor
