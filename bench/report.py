"""The short report of a run, and two runs side by side; made for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.measure import Unit
from bench.results import Measured, Run

_HEAD = ("figure", "p50", "p90", "p99", "least–most", "n", "÷ floor", "reach", "")


def written(run: Run) -> str:
    """The report as a Markdown table, readable as it is."""
    machine = run.machine
    head = (
        f"{machine['cores']} cores, Python {machine['python']}, load {machine['loadBefore']} before"
    )
    lines = [head, "", *_table([_HEAD, *map(_row, run.figures)]), ""]
    lines += [f"- {each.name}: {each.what}{_details(each)}" for each in run.figures]
    return "\n".join(lines)


def compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Two runs, figure by figure; above 1 the second took longer, or did less a second."""
    old = {each["name"]: each for each in before["figures"]}
    rows: list[Sequence[str]] = [
        ("figure", "before", "after", "worse by", "÷ floor before", "÷ floor after")
    ]
    for new in after["figures"]:
        then = old.get(new["name"])
        if then is not None:
            rows.append(_compared_row(then, new))
    return "\n".join(_table(rows))


def _compared_row(then: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    unit = Unit(new["unit"])
    was, now = then["distribution"]["p50"], new["distribution"]["p50"]
    worse = was / now if unit is Unit.PER_SECOND else now / was
    ratios = (_number(each["ratio"]) for each in (then, new))
    return (new["name"], in_unit(was, unit), in_unit(now, unit), f"{worse:.2f}", *ratios)


def in_unit(value: float, unit: Unit) -> str:
    """A value as a person reads it."""
    if unit is Unit.PER_SECOND:
        return f"{value:,.0f}/s"
    if unit is Unit.EACH:
        return f"{value:.1f}"
    if unit is Unit.BYTES:
        return f"{value / 1024:,.1f} KiB"
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"


def _row(each: Measured) -> tuple[str, ...]:
    spread = each.distribution
    p50, p90, p99, least, most = (
        in_unit(value, each.unit)
        for value in (spread.p50, spread.p90, spread.p99, spread.least, spread.most)
    )
    verdict = {None: "", True: "reached", False: "not reached"}[each.is_reached]
    return (
        each.name, p50, p90, p99, f"{least}–{most}", str(spread.samples), _number(each.ratio),
        _reach(each), verdict,
    )  # fmt: skip


def _reach(each: Measured) -> str:
    if each.reach is None:
        return ""
    sign = "≥" if each.reach.at_least else "≤"
    bound = each.reach.bound
    return f"{sign} {bound:g} ×" if each.reach.of_floor else f"{sign} {in_unit(bound, each.unit)}"


def _number(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _details(each: Measured) -> str:
    told = [f"{name} {value}" for name, value in each.details.items()]
    if each.floor is not None:
        floor = each.floor
        often = "" if floor.times == 1 else f"{floor.times:g} × "
        told.insert(0, f"floor: {often}{floor.name}, {in_unit(floor.median, each.unit)}")
    return f" ({'; '.join(told)})" if told else ""


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(cells: Iterable[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    yield line(rows[0])
    yield line("-" * width for width in widths)
    yield from map(line, rows[1:])
