"""The demo as it goes: a live table in a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.demo.dispatcher import Finished
from examples.demo.sight import Sight

LINES_KEPT: Final = 8
STATE_STYLES: Final = {"reserved": "yellow", "spawning": "yellow", "booting": "yellow",
                       "idle": "cyan", "busy": "green", "destroying": "magenta",
                       "quarantined": "bold red"}  # fmt: skip


class View(Protocol):
    """Shows what happens."""

    def shown(self) -> AbstractContextManager[object]:
        """Show, for the time of the context."""

    def happened(self, text: str) -> None:
        """Something worth a line."""

    def update(self, sight: Sight, finished: Mapping[str, Finished], total: int) -> None:
        """The state of things now."""


def make_view(console: Console) -> View:
    """The view that suits the console."""
    return LiveView(console) if console.is_terminal else PlainView(console)


class PlainView:
    """A line for each change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = time.monotonic()
        self._told: dict[str, str] = {}

    def shown(self) -> AbstractContextManager[object]:
        return nullcontext()

    def happened(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._begun:6.1f} s  {text}", soft_wrap=True)

    def update(self, sight: Sight, finished: Mapping[str, Finished], total: int) -> None:
        """Tell what changed: states of agents; jobs tell of themselves as they end."""
        for agent in sight.agents:
            said = f"{agent.agent_id} {agent.state}"
            if self._told.get(agent.agent_id) != said:
                self._told[agent.agent_id] = said
                self.happened(f"{said}  {agent.job_id or '-'}")


class LiveView:
    """Counts, agents and the last happenings, drawn anew in place."""

    def __init__(self, console: Console) -> None:
        self._begun = time.monotonic()
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._drawn: RenderableType = Text("")
        self._live = Live(
            console=console, refresh_per_second=4, get_renderable=self._whole, transient=True
        )

    def shown(self) -> AbstractContextManager[object]:
        return self._live

    def happened(self, text: str) -> None:
        self._lines.append(f"{time.monotonic() - self._begun:6.1f} s  {text}")

    def update(self, sight: Sight, finished: Mapping[str, Finished], total: int) -> None:
        self._drawn = Group(_counts(sight, finished, total), _agents(sight))

    def _whole(self) -> RenderableType:
        lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in self._lines]
        return Group(self._drawn, Text(""), *lines)


def _counts(sight: Sight, finished: Mapping[str, Finished], total: int) -> Text:
    states = [each.state for each in sight.requests]
    as_wanted = sum(not each.complaint for each in finished.values())
    parts = [f"{states.count(name)} {name}" for name in ("waiting", "assigned", "running")]
    return Text(f"{total} jobs: {', '.join(parts)}, {as_wanted} ended as they should", "bold")


def _agents(sight: Sight) -> Table:
    table = Table("agent", "state", "job", box=None, header_style="dim")
    for agent in sight.agents:
        state = Text(agent.state, STATE_STYLES.get(agent.state, ""))
        table.add_row(agent.agent_id, state, agent.job_id or "-")
    return table
