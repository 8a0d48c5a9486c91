"""Demand as a table: one job a line, read strictly."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TextIO, TypeVar

from kici_scaler.domain.labels import canonical, label_problem
from kici_scaler.domain.resources import BadResources, parse_resources
from kici_scaler.domain.scalers import Resources
from kici_scaler.errors import InvalidInput

REQUIRED: Final = ("time", "labels", "duration")
OPTIONAL: Final = ("cpus", "memory", "org", "priority", "image")
MOST_JOBS: Final = 200_000
_LONGEST_SECONDS: Final = 366 * 86_400.0

T = TypeVar("T")


class BadTrace(InvalidInput):
    """A trace that cannot be read; the message names the line and the column."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a trace.

    Attributes:
        at: when it was asked for, in seconds since 1970; a trace in plain seconds begins there.
        seconds: how long it ran once its agent had it.
    """

    id: str
    at: float
    labels: frozenset[str]
    seconds: float
    resources: Resources = field(default_factory=Resources)
    org: str | None = None
    priority: int = 0
    own_image: bool = False


def read(source: TextIO, name: str) -> list[Job]:
    """The jobs of a CSV file with a header, in the order of their times.

    Raises:
        BadTrace: a column is missing or unknown, or a value cannot be used.
    """
    rows = csv.reader(source, strict=True)
    try:
        header = next(rows, None)
        if not header:
            raise BadTrace(f"{name}:1: the trace is empty", hint=_hint())
        columns = _columns(header, name)
        jobs = [
            _job(_Line(name, rows.line_num, columns, row))
            for row in rows
            if any(cell.strip() for cell in row)
        ]
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadTrace(f"{name}:{rows.line_num}: not CSV: {error}") from error
    if not jobs:
        raise BadTrace(f"{name}: there is no job below the header", hint=_hint())
    if len(jobs) > MOST_JOBS:
        raise BadTrace(f"{name}: {len(jobs)} jobs; at most {MOST_JOBS} are simulated")
    return sorted(jobs, key=lambda each: each.at)


def _columns(header: Sequence[str], name: str) -> tuple[str, ...]:
    found = tuple(cell.strip().lower() for cell in header)
    for place, column in enumerate(found, 1):
        if column not in (*REQUIRED, *OPTIONAL):
            raise BadTrace(f"{name}:1: column {place} (`{column}`) is not known", hint=_hint())
        if found.index(column) != place - 1:
            raise BadTrace(f"{name}:1: column `{column}` stands there twice", hint=_hint())
    missing = [column for column in REQUIRED if column not in found]
    if missing:
        raise BadTrace(f"{name}:1: column `{missing[0]}` is missing", hint=_hint())
    return found


def _hint() -> str:
    return f"columns are {', '.join(REQUIRED)}, and if you like {', '.join(OPTIONAL)}"


class _Line:
    """One line of the table, whose values are asked for by column."""

    def __init__(self, name: str, number: int, columns: Sequence[str], row: Sequence[str]) -> None:
        self.number = number
        self._name = name
        if len(row) != len(columns):
            raise BadTrace(f"{name}:{number}: {len(row)} values under {len(columns)} columns")
        self._cells = dict(zip(columns, (cell.strip() for cell in row), strict=True))

    def value(self, column: str, convert: Callable[[str], T], otherwise: T | None = None) -> T:
        """A converted value; `otherwise` stands for one that is empty or left out."""
        text = self._cells.get(column, "")
        if not text and otherwise is not None:
            return otherwise
        try:
            return convert(text)
        except ValueError as error:
            raise BadTrace(f"{self._name}:{self.number}: column `{column}`: {error}") from error

    def text(self, column: str) -> str:
        """A value as it stands; empty when it is left out."""
        return self._cells.get(column, "")

    def resources(self) -> Resources:
        """What the job declares of CPUs and memory."""
        cpus, memory = self._cells.get("cpus"), self._cells.get("memory")
        declared: dict[str, object] = {}
        if cpus:
            declared["cpus"] = self.value("cpus", _number)
        if memory:
            declared["memory"] = memory
        try:
            return parse_resources(declared or None)
        except BadResources as error:
            column = "memory" if "memory" in str(error) else "cpus"
            where = f"{self._name}:{self.number}: column `{column}`"
            raise BadTrace(f"{where}: {error}") from error


def _job(line: _Line) -> Job:
    return Job(
        id=f"line-{line.number}",
        at=line.value("time", moment),
        labels=line.value("labels", _labels),
        seconds=line.value("duration", _duration),
        resources=line.resources(),
        org=line.text("org") or None,
        priority=line.value("priority", _priority, 0),
        own_image=bool(line.text("image")),
    )


def moment(text: str) -> float:
    """Seconds since 1970, of a plain number of seconds or an ISO 8601 time (UTC unless it says).

    Raises:
        ValueError: it is neither, or out of range.
    """
    try:
        number = float(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            message = f"`{text}` is neither a number of seconds nor a time (2026-05-04T08:30:00Z)"
            raise ValueError(message) from None
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if not 0 <= number < 2**33:
        raise ValueError(f"`{text}` is no time: seconds count from 0")
    return number


def _labels(text: str) -> frozenset[str]:
    """Separated by blanks, commas or bars."""
    found = [each for each in re.split(r"[\s,|;]+", text) if each]
    for label in found:
        problem = label_problem(label)
        if problem:
            raise ValueError(f"label `{label}` {problem}")
    return frozenset(map(canonical, found))


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise ValueError(f"`{text}` is not a number") from None
    if not math.isfinite(found):
        raise ValueError(f"`{text}` is not a number")
    return found


def _duration(text: str) -> float:
    found = _number(text)
    if not 0 <= found <= _LONGEST_SECONDS:
        raise ValueError(f"`{text}` is no duration in seconds")
    return found


def _priority(text: str) -> int:
    found = int(_number(text))
    if not -1000 <= found <= 1000 or found != _number(text):
        raise ValueError(f"`{text}` is no whole number between -1000 and 1000")
    return found
