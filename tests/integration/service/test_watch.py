"""A watch that nobody keeps does not stay unnoticed."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kici_scaler.domain.windows import Windows
from kici_scaler.metrics import declared
from kici_scaler.service import diagnose, figures, status, sweep, watch
from kici_scaler.service.runtime import Runtime
from kici_scaler.service.watch import Watch
from tests.support.rows import Rows

pytestmark = pytest.mark.usefixtures("one_place")
ALARM = "nobody watches over agents; every deadline stands still"


def _watch(runtime: Runtime, rows: Rows) -> Watch:
    found = rows.call(watch.look, Windows())
    assert isinstance(found, Watch)
    return found


def _tick(runtime: Runtime, rows: Rows) -> list[str]:
    """A sweep one second after the one before; the alarms it gave."""
    rows.execute(
        "UPDATE duties SET ticked_at = clock_timestamp() - interval '1 s' WHERE duty = 'sweep'"
    )
    with capture_logs() as logs:
        sweep.sweep(runtime)
    return [each["hint"] for each in logs if each["event"] == ALARM]


def _unwatched(rows: Rows, seconds: float) -> None:
    rows.execute(
        "UPDATE observation SET watched_at = clock_timestamp() - make_interval(secs => :s)",
        s=seconds,
    )


def test_an_empty_house_has_nothing_to_watch(runtime: Runtime, rows: Rows) -> None:
    assert _watch(runtime, rows) == Watch(0.0, "")


def test_without_a_gateway_it_is_told_after_a_while_and_alarmed_once_a_minute(
    runtime: Runtime, rows: Rows
) -> None:
    rows.gateway()
    assert _tick(runtime, rows) == []
    assert _watch(runtime, rows) == Watch(0.0, "")
    rows.shift("gateways", "gw-1", last_heartbeat=-900.0)
    _unwatched(rows, 30.0)
    assert _tick(runtime, rows) == [], "an ordinary restart takes as long"
    _unwatched(rows, 900.0)
    assert _tick(runtime, rows) == ["no gateway lives: start one"]
    assert _tick(runtime, rows) == []
    found = _watch(runtime, rows)
    assert found.is_alarming
    (row,) = [row for row in diagnose.diagnosis(runtime) if row.name == "watch"]
    assert row.health == "fail"
    assert "every deadline stands still; no gateway lives" in row.message
    told = status.read(runtime).watch
    assert told.unwatched_seconds >= 900
    gauge = figures.read(runtime).values[declared.UNWATCHED]
    assert gauge[()] >= 900


def test_a_front_that_never_came_counts_from_the_first_sweep_on(
    runtime: Runtime, rows: Rows
) -> None:
    sweep.sweep(runtime)
    rows.execute("UPDATE duties SET ticked_at = clock_timestamp() - interval '5 s'")
    assert _watch(runtime, rows) == Watch(0.0, "")


def test_without_a_sweep_that_is_what_is_missing(runtime: Runtime, rows: Rows) -> None:
    rows.gateway()
    sweep.sweep(runtime)
    _unwatched(rows, 100.0)
    rows.execute("UPDATE duties SET ticked_at = clock_timestamp() - interval '100 s'")
    assert "no sweep runs" in _watch(runtime, rows).why
