"""A duty that any number of clocks fire is performed once a tick."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from kici_scaler.store import duties
from tests.support.rows import Rows


def _claim(rows: Rows, duty: str = "sweep", interval: float = 10.0) -> bool:
    return bool(rows.call(duties.claim_tick, duty, interval_seconds=interval))


def _age(rows: Rows, seconds: float) -> None:
    rows.execute(
        "UPDATE duties SET ticked_at = clock_timestamp() - make_interval(secs => :ago)",
        ago=seconds,
    )


def test_a_tick_is_owned_once(rows: Rows) -> None:
    assert _claim(rows)
    assert not _claim(rows)
    assert _claim(rows, "other")


def test_the_next_tick_comes_a_little_before_the_interval_is_over(rows: Rows) -> None:
    """Clocks tremble: a tick that comes slightly early must not be skipped."""
    _claim(rows)
    _age(rows, 7.9)
    assert not _claim(rows)
    _age(rows, 8.1)
    assert _claim(rows)
    assert not _claim(rows)


def test_of_many_clocks_one_owns_each_tick(rows: Rows) -> None:
    for _ in range(15):
        _age(rows, 100)
        gate = threading.Barrier(12)

        def claim(_: int, gate: threading.Barrier = gate) -> bool:
            gate.wait(20)
            return _claim(rows)

        with ThreadPoolExecutor(12) as pool:
            assert sum(pool.map(claim, range(12))) == 1


def test_a_tick_whose_owner_failed_is_free_again(rows: Rows) -> None:
    with rows.engine.connect() as connection:
        assert duties.claim_tick(connection, "sweep", interval_seconds=10)
        connection.rollback()
    assert _claim(rows)


def test_how_long_ago_a_duty_was_performed(rows: Rows) -> None:
    assert rows.call(duties.seconds_since, "sweep") is None
    _claim(rows)
    _age(rows, 100)
    assert 100 <= rows.call(duties.seconds_since, "sweep") < 110
