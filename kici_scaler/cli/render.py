"""Tables and amounts as a person reads them; programs ask for `--json` instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH_OF_A_PIPE: Final = 240
"""Columns for output that no terminal shows, so that nothing is cut or wrapped."""

STYLES: Final[Mapping[str, str]] = {
    "waiting": "yellow",
    "reserved": "yellow",
    "assigned": "cyan",
    "spawning": "cyan",
    "booting": "cyan",
    "idle": "cyan",
    "running": "green",
    "busy": "green",
    "active": "green",
    "up": "green",
    "succeeded": "green",
    "failed": "red",
    "refused": "red",
    "quarantined": "bold red",
    "unreachable": "bold red",
    "degraded": "bold red",
    "destroying": "magenta",
    "draining": "magenta",
    "retiring": "magenta",
    "paused": "magenta",
}
"""Colours of states, so that what needs a look is found at once."""

_STEPS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def console() -> Console:
    """The standard output, wide where it is no terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=WIDTH_OF_A_PIPE)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print a table, or a sentence when there is nothing to put into it."""
    found = list(rows)
    console().print(table_of(columns, found) if found else empty)


def print_details(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair a line."""
    console().print(details_of(pairs))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of plain values; None is shown as `-`, a known state in its colour."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def details_of(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one pair a line; pairs without a value are left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, "", [], {}):
            table.add_row(name, cell(value))
    return table


def cell(value: object) -> Text:
    """One value of a table."""
    if value is None or value == "":
        return Text("-", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, datetime):
        return Text(value.astimezone().isoformat(sep=" ", timespec="seconds"))
    if isinstance(value, list | tuple):
        return Text(", ".join(map(str, value)) or "-")
    return Text(str(value), style=STYLES.get(str(value), ""))


def ago(moment: datetime | None, now: datetime | None = None) -> str | None:
    """How long ago that was: `12 s`, `3 min`, `2 h`, `5 d`."""
    if moment is None:
        return None
    return span(((now or datetime.now(UTC)) - moment).total_seconds())


def span(seconds: float) -> str:
    """A duration in the largest unit that it fills."""
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
