"""The page of a run shows growth, courses and distributions, and nothing that was not measured."""

from __future__ import annotations

from bench.measure import Distribution, Unit
from bench.plots import page, panels
from bench.results import Course, Floor, Measured, Point, Run

MACHINE = {"cores": 2, "python": "3.11", "loadBefore": 0.5}


def _figure(name: str, samples: list[float], unit: Unit = Unit.SECONDS, **more: object) -> Measured:
    return Measured(name, "what", unit, Distribution.of(samples), **more)  # type: ignore[arg-type]  # by name


def test_figures_of_one_plot_become_its_lines_in_order() -> None:
    figures = [
        _figure(f"{line} {at}", [at / 1e6], point=Point("cost", line, "agents", at))
        for line in ("sweep", "admission")
        for at in (100.0, 10.0)
    ]
    (panel,) = panels(figures)
    assert (panel.title, panel.across) == ("cost", "agents")
    assert panel.lines["sweep"] == [(10.0, 0.01), (100.0, 0.1)]
    assert set(panel.lines) == {"sweep", "admission"}


def test_rates_stand_in_a_plot_as_they_are() -> None:
    (panel,) = panels(
        [_figure("rate", [7.0], Unit.PER_SECOND, point=Point("rates", "all", "workers", 1))]
    )
    assert panel.lines["all"] == [(1, 7.0)]


def test_a_course_is_shown_over_time() -> None:
    course = Course("left", [(0.0, 3), (1.0, 0)])
    (panel,) = panels([_figure("burst", [1.0], course=course)])
    assert panel.lines == {"burst": [(0.0, 3), (1.0, 0)]}


def test_a_distribution_is_beside_its_floor_as_often_as_that_counts() -> None:
    floor = Floor("empty", Distribution.of([0.001] * 10), times=2)
    (panel,) = panels([_figure("one", [0.001 * n for n in range(1, 11)], floor=floor)])
    assert panel.lines["one"][-1] == (10.0, 100.0)
    assert {x for x, _ in panel.lines["floor"]} == {2.0}


def test_few_samples_are_no_distribution() -> None:
    assert not list(panels([_figure("few", [1.0] * 9)]))


def test_the_page_holds_the_table_and_every_plot() -> None:
    text = page(Run(MACHINE, [_figure("a <figure>", [0.001 * n for n in range(1, 11)])]))
    assert text.count("<svg") == 1
    assert "a &lt;figure&gt;" in text
