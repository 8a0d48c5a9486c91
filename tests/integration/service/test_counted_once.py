"""A provision that died is counted once, however many see it die at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import inspect, operate, request, start, sweep
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.start import StartOrder
from kici_scaler.store import scaler_states
from tests.integration.service import work
from tests.support.rows import KIND, MACHINE, Rows

pytestmark = pytest.mark.usefixtures("one_place")

BATCH = 50
ROUNDS = 3
"""Three hundred provisions in all, each seen dying by several at once."""

Observer = Callable[[Runtime, Sequence[StartOrder]], object]


def _started(runtime: Runtime, rows: Rows, *, made: bool) -> list[StartOrder]:
    """As many starts, overdue; with `made`, of compute that exists."""
    request.submit(
        runtime, [parse_request(work.body(f"job-{number}", "roomy")) for number in range(BATCH)]
    )
    rows.execute("UPDATE spawns SET spawn_slots = :most", most=BATCH)
    orders, _ = start.take(runtime, backend_type=KIND, machine_id=MACHINE, most=BATCH)
    assert len(orders) == BATCH
    for order in orders if made else ():
        assert start.record_created(runtime, order, {"pid": "1"}, ()) is SpawnState.BOOTING
    rows.execute(
        "UPDATE spawns SET due_at = now() - interval '1 s', deadline_at = now() - interval '1 s'"
    )
    return orders


def _sweeps(runtime: Runtime, _orders: Sequence[StartOrder]) -> None:
    for _ in range(3):
        with runtime.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE duties SET ticked_at = now() - interval '2 s'")
        sweep.sweep(runtime)


def _inspects(runtime: Runtime, orders: Sequence[StartOrder]) -> None:
    for seen in inspect.to_inspect(runtime, [order.row.agent_id for order in orders]):
        inspect.record_exit(runtime, seen, why="it exited with code 1")


def _fails(runtime: Runtime, orders: Sequence[StartOrder]) -> None:
    for order in orders:
        start.record_failure(runtime, order, "no such image")


def _fails_backwards(runtime: Runtime, orders: Sequence[StartOrder]) -> None:
    _fails(runtime, orders[::-1])


def _destroys_some(runtime: Runtime, orders: Sequence[StartOrder]) -> None:
    for order in orders[::7]:
        operate.destroy(runtime, order.row.agent_id, actor="test")


def _all_at_once(
    runtime: Runtime, orders: Sequence[StartOrder], observers: Sequence[Observer]
) -> None:
    gate = Barrier(len(observers))

    def observe(observer: Observer) -> None:
        gate.wait(20)
        observer(runtime, orders)

    with ThreadPoolExecutor(len(observers)) as pool:
        for done in [pool.submit(observe, each) for each in observers]:
            done.result(60)


@pytest.mark.parametrize(
    ("made", "observers"),
    [
        (True, [_sweeps, _inspects, _inspects, _fails, _destroys_some]),
        (False, [_sweeps, _fails, _fails_backwards, _destroys_some]),
    ],
    ids=["made", "being made"],
)
def test_one_failure_one_backoff_step_one_error(
    runtime: Runtime, rows: Rows, made: bool, observers: list[Observer]
) -> None:
    rows.gateway()
    sweep.sweep(runtime)
    counted = 0
    for number in range(1, ROUNDS + 1):
        rows.execute("UPDATE gateways SET last_heartbeat = now()")
        rows.execute("UPDATE machines SET last_heartbeat = now()")
        rows.execute("UPDATE scaler_states SET backoff_until = NULL, failure_streak = 0")
        before = rows.count("outcomes", "failed")
        _all_at_once(runtime, _started(runtime, rows, made=made), observers)
        failed = rows.count("outcomes", "failed") - before
        # A person who was quicker ended some of them: no failures.
        assert BATCH - len(range(0, BATCH, 7)) <= failed <= BATCH
        counted += failed
        assert rows.call(scaler_states.all_states)["roomy"].failure_streak == failed
        assert rows.count("events", "type = 'scaler.failed'") == counted
        assert rows.count("outcomes") == number * BATCH
        assert rows.count("scale_requests", "requeues = 1 AND state = 'waiting'") == BATCH
        rows.execute("DELETE FROM spawns; DELETE FROM scale_requests")
