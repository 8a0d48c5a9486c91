"""Distributions, ratios and verdicts say what the samples say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.measure import Distribution, Unit, timed
from bench.report import compared, in_unit, written
from bench.results import Floor, Measured, Reach, Run

MACHINE = {"cores": 2, "python": "3.11", "loadBefore": 0.5}


def _figure(p50: float, *, unit: Unit = Unit.SECONDS, **more: Any) -> Measured:
    return Measured("figure", "what it is", unit, Distribution.of([p50]), **more)


def test_percentiles_are_samples_and_invent_none() -> None:
    spread = Distribution.of([float(number) for number in range(100, 0, -1)])
    assert (spread.least, spread.p50, spread.p90, spread.p99, spread.most) == (1, 50, 90, 99, 100)
    alone = Distribution.of([7.0])
    assert (alone.samples, alone.least, alone.p99, alone.most) == (1, 7, 7, 7)


def test_what_is_prepared_and_what_warms_up_is_not_counted() -> None:
    calls: list[str] = []
    taken = timed(calls.append, prepare=lambda: "work", repeats=3, warm_up=2)
    assert calls == ["work"] * 5
    assert len(taken) == 3


@pytest.mark.parametrize(
    ("reach", "is_reached"),
    [
        (Reach(2.0), True),
        (Reach(1.9), False),
        (Reach(2.0, at_least=True), True),
        (Reach(2.1, at_least=True), False),
        (Reach(4.0, of_floor=True), True),
        (Reach(3.9, of_floor=True), False),
    ],
)
def test_a_verdict_is_of_the_median_or_its_ratio(reach: Reach, is_reached: bool) -> None:
    floor = Floor("floor", Distribution.of([0.25]), times=2)
    assert _figure(2.0, floor=floor, reach=reach).is_reached is is_reached


def test_a_figure_that_nothing_is_asked_of_has_no_verdict() -> None:
    assert _figure(1.0).is_reached is None
    assert _figure(1.0).ratio is None


def test_the_report_tells_figure_floor_and_verdict() -> None:
    floor = Floor("empty transaction", Distribution.of([0.001]))
    text = written(Run(MACHINE, [_figure(0.002, floor=floor, reach=Reach(3, of_floor=True))]))
    assert "| figure | 2.00 ms" in text
    assert "2.00" in text
    assert "| ≤ 3 × | reached" in text
    assert "floor: empty transaction, 1.00 ms" in text


@pytest.mark.parametrize(
    ("unit", "before", "after", "worse"),
    [(Unit.SECONDS, 1.0, 2.0, "2.00"), (Unit.PER_SECOND, 100.0, 50.0, "2.00")],
)
def test_a_comparison_says_how_much_worse_in_either_direction(
    unit: Unit, before: float, after: float, worse: str
) -> None:
    runs = [Run(MACHINE, [_figure(value, unit=unit)]).as_json() for value in (before, after)]
    cells = [cell.strip() for cell in compared(*runs).splitlines()[-1].split("|")]
    assert cells[4] == worse


def test_results_survive_their_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for number, value in enumerate((0.001, 0.002)):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(Run(MACHINE, [_figure(value)]).as_json()))
        files.append(str(file))
    assert main(["compare", *files]) == 0
    assert "| figure | 1.00 ms | 2.00 ms | 2.00 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5, Unit.SECONDS, "1.50 s"),
        (0.0015, Unit.SECONDS, "1.50 ms"),
        (0.0000015, Unit.SECONDS, "2 µs"),
        (12_345.6, Unit.PER_SECOND, "12,346/s"),
        (5.46, Unit.EACH, "5.5"),
    ],
)
def test_values_are_written_in_their_unit(value: float, unit: Unit, text: str) -> None:
    assert in_unit(value, unit) == text
