"""The sweep: what it costs while nothing is due, however many agents live."""

from __future__ import annotations

import time
from collections.abc import Iterator

from sqlalchemy import text

from bench import floors
from bench.admission import passes
from bench.measure import Distribution, Unit, timed_by
from bench.place import Place, servers
from bench.population import connect, forget_undecided, populate
from bench.processor import clock_of, database_session
from bench.results import Measured, Point, Reach
from kici_scaler.service import sweep
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import gateways, settings
from kici_scaler.store.engine import transaction

SIZES = (1_000, 10_000, 100_000)
SCALERS = 20
GATEWAY = "bench"
GROWTH = "cost against live agents (ms)"


def figures() -> Iterator[Measured]:
    """The sweep among 1,000, 10,000 and 100,000 live agents, all connected, none of them due."""
    with servers(SCALERS) as place:
        _open_gateway(place)
        for size, before in zip(SIZES, (0, *SIZES), strict=False):
            populate(place, size - before, scalers=SCALERS, first=before + 1)
            connect(place, GATEWAY)
            yield from _among(place, size)
            yield _admission(place, size)


def _open_gateway(place: Place) -> None:
    """One that is fresh for as long as figures are taken, though it does not run."""
    with transaction(place.engine) as connection:
        gateways.open_incarnation(connection, GATEWAY, host="bench", pid=1)
        settings.put(connection, "gateway_stale_seconds", 86_400, changed_by="bench")


def _among(place: Place, size: int) -> Iterator[Measured]:
    runtime = Runtime(place.engine, "bench")
    forget_undecided(place)

    def prepare() -> None:
        with transaction(place.engine) as connection:
            connection.execute(text("UPDATE duties SET ticked_at = ticked_at - interval '1 s'"))

    def work(_: None) -> None:
        swept = sweep.sweep(runtime)
        assert swept.owned_tick, swept
        assert swept.looked_at == 0, swept

    with floors.around(
        floors.EMPTY_TRANSACTION, lambda: floors.empty_transactions(place.engine)
    ) as empty:
        clocks = (time.perf_counter, clock_of([database_session(place.engine)]))
        wall, processor = timed_by(clocks, work, prepare=prepare, repeats=60, warm_up=5)
    name = f"sweep, {size:,} agents"
    yield Measured(
        name,
        f"one tick of the sweep among {size:,} live agents, none due",
        Unit.SECONDS,
        Distribution.of(wall),
        floor=empty.floor(),
        reach=Reach(3, of_floor=True),
        point=Point(GROWTH, "a tick of the sweep, none due", "live agents", size),
    )
    yield Measured(
        f"{name}: processor",
        "processor time of it, here and in the database's session",
        Unit.SECONDS,
        Distribution.of(processor),
    )


def _admission(place: Place, size: int) -> Measured:
    wall, _ = passes(place, 1, repeats=40)
    return Measured(
        f"admission of one, {size:,} agents",
        f"one waiting request decided and reserved among {size:,} live agents",
        Unit.SECONDS,
        Distribution.of(wall),
        point=Point(GROWTH, "admission of one request", "live agents", size),
    )
