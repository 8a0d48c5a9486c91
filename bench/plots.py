"""The report of a run as a page: the table, and what a table does not show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape

from bench.measure import Unit
from bench.report import written
from bench.results import Measured, Run
from kici_scaler.service.simulate.plots import Panel, Points, svg

FEWEST = 10
"""Samples below which a distribution is no curve."""


def page(run: Run) -> str:
    """One HTML file that needs nothing besides itself."""
    plots = "\n".join(svg([panel], list(panel.lines)) for panel in panels(run.figures))
    title = "kici-scaler: figures"
    return (
        f'<!doctype html>\n<html><head><meta charset="utf-8"><title>{title}</title></head><body>\n'
        f"<h1>{title}</h1>\n<pre>{escape(written(run))}</pre>\n{plots}</body></html>\n"
    )


def panels(figures: Sequence[Measured]) -> Iterator[Panel]:
    """Cost against what it may grow with, courses over time, and how samples are distributed."""
    yield from _growth(figures)
    for each in figures:
        if each.course is not None:
            yield Panel(each.course.plot, "seconds", {each.name: each.course.points})
    for each in figures:
        if each.unit is Unit.SECONDS and each.distribution.samples >= FEWEST:
            yield _distribution(each)


def _growth(figures: Sequence[Measured]) -> Iterator[Panel]:
    lines: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for each in figures:
        if each.point is not None:
            plot = lines.setdefault((each.point.plot, each.point.across), defaultdict(list))
            scale = 1e3 if each.unit is Unit.SECONDS else 1.0
            plot[each.point.line].append((each.point.at, each.distribution.p50 * scale))
    for (title, across), found in lines.items():
        yield Panel(title, across, {line: sorted(points) for line, points in found.items()})


def _distribution(each: Measured) -> Panel:
    lines = {each.name: _shares(each.distribution.curve)}
    if each.floor is not None:
        often = each.floor.times
        lines["floor"] = _shares([value * often for value in each.floor.distribution.curve])
    return Panel(f"{each.name}: share of the samples that took no longer (%)", "ms", lines)


def _shares(ordered: Sequence[float]) -> Points:
    return [(1e3 * value, 100 * (at + 1) / len(ordered)) for at, value in enumerate(ordered)]
