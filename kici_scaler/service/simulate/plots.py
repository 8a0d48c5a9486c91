"""Plots of simulations as one SVG picture; it needs nothing besides itself to be shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from kici_scaler.service.simulate.course import Course, Sample

WIDTH: Final = 960
_PANEL: Final = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 34, 34
_COLOURS: Final = ("#1f6feb", "#d1662b", "#2e8b57", "#8250df")
_MOST_POINTS: Final = 700
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#333}.title{font-weight:bold}"
    ".axis{stroke:#999}.grid{stroke:#e4e4e4}.line{fill:none;stroke-width:1.5}"
)

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one axis, by name."""

    title: str
    across: str
    lines: Mapping[str, Points]


def picture(courses: Mapping[str, Course]) -> str:
    """Waiting jobs, agents, ready agents over time, and the share of jobs by their wait."""
    panels = [
        _over_time("jobs that wait", courses, "waiting"),
        _over_time("agents", courses, "agents"),
        _over_time("agents that stand ready", courses, "idle"),
        Panel(
            "share of the jobs that had waited no longer (%)",
            "seconds",
            {name: _distribution(course) for name, course in courses.items()},
        ),
    ]
    return svg(panels, list(courses))


def page(courses: Mapping[str, Course], title: str) -> str:
    """The same as a page of HTML."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    body = f"<h1>{escape(title)}</h1>\n{picture(courses)}"
    return f"<!doctype html>\n<html>{head}<body>\n{body}</body></html>\n"


def svg(panels: Sequence[Panel], names: Sequence[str]) -> str:
    """Panels below each other; a line has the colour of its name in all of them."""
    height = len(panels) * _PANEL + 30
    colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(names)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}">',
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>',
    ]
    for place, (name, colour) in enumerate(colours.items()):
        across = _LEFT + place * 220
        parts.append(f'<rect x="{across}" y="8" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{across + 18}" y="18">{escape(name[:32])}</text>')
    for place, panel in enumerate(panels):
        parts += _drawn(panel, 24 + place * _PANEL, colours)
    return "\n".join([*parts, "</svg>\n"])


def _drawn(panel: Panel, top: float, colours: Mapping[str, str]) -> Iterator[str]:
    points = [point for line in panel.lines.values() for point in line] or [(0.0, 0.0)]
    right = max(x for x, _ in points) or 1.0
    high = max(y for _, y in points) or 1.0
    left_edge, right_edge = _LEFT, WIDTH - _RIGHT
    upper, lower = top + _TOP, top + _PANEL - _BOTTOM

    def at(point: tuple[float, float]) -> str:
        x = left_edge + point[0] / right * (right_edge - left_edge)
        y = lower - point[1] / high * (lower - upper)
        return f"{x:.1f},{y:.1f}"

    yield f'<text class="title" x="{left_edge}" y="{top + 22}">{escape(panel.title)}</text>'
    for step in range(5):
        y = lower - step / 4 * (lower - upper)
        x = left_edge + step / 4 * (right_edge - left_edge)
        kind = "grid" if step else "axis"
        yield f'<line class="{kind}" x1="{left_edge}" y1="{y:.1f}" x2="{right_edge}" y2="{y:.1f}"/>'
        yield _text(left_edge - 6, y + 4, "end", _short(high * step / 4))
        yield _text(x, lower + 16, "middle", _short(right * step / 4))
    yield _text(right_edge, lower + 30, "end", panel.across)
    for name, line in panel.lines.items():
        path = " ".join(map(at, line))
        yield f'<polyline class="line" stroke="{colours[name]}" points="{path}"/>'


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _over_time(title: str, courses: Mapping[str, Course], what: str) -> Panel:
    return Panel(
        title,
        "seconds since the first job",
        {name: _steps(course, what) for name, course in courses.items()},
    )


def _steps(course: Course, what: str) -> list[tuple[float, float]]:
    """As steps, and of stretches that one point stands for the highest."""
    begin = course.fates[0].job.at if course.fates else 0.0
    samples = course.samples
    size = max(1, len(samples) // _MOST_POINTS)
    found: list[tuple[float, float]] = []
    for start in range(0, len(samples), size):
        part = samples[start : start + size]
        at = max(0.0, part[0].at - begin)
        if found:
            found.append((at, found[-1][1]))
        found.append((at, max(_value(each, what) for each in part)))
    return found


def _value(sample: Sample, what: str) -> float:
    return float(getattr(sample, what))


def _distribution(course: Course) -> list[tuple[float, float]]:
    waits = sorted(each.wait for each in course.fates if each.wait is not None)
    if not waits:
        return []
    last = len(waits) - 1
    places = sorted({last * step // _MOST_POINTS for step in range(_MOST_POINTS + 1)})
    return [(waits[place], 100 * (place + 1) / len(course.fates)) for place in places]


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
