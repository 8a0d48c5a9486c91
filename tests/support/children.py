"""Small programs for a supervisor to keep, and someone to hear them."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil

from kici_scaler.embedded.child import Child
from kici_scaler.embedded.process import Command, StopStep


class Heard:
    """A listener that keeps everything."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.events: list[tuple[str, str]] = []

    def line(self, name: str, text: str) -> None:
        self.lines.append((name, text))

    def event(self, name: str, text: str) -> None:
        self.events.append((name, text))

    def said(self, name: str) -> list[str]:
        """The lines of one child."""
        return [text for whose, text in self.lines if whose == name]


READY = "import pathlib, os; pathlib.Path(os.environ['MARK']).touch()\n"
STAY = "import signal\nwhile True: signal.pause()\n"


def program(source: str, folder: Path, **environment: str) -> Command:
    """A Python program in a folder."""
    return Command(
        argv=(sys.executable, "-S", "-c", textwrap.dedent(source)),
        environment={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", **environment},
        directory=folder,
    )


def child(
    name: str,
    folder: Path,
    source: str = READY + STAY,
    *,
    stop: tuple[StopStep, ...] = (StopStep(signal.SIGTERM, 5.0),),
    tier: int = 0,
    ready_within: float = 20.0,
) -> Child:
    """A child that is ready once it created the file that its variable MARK names."""
    mark = folder / f"{name}.mark"

    def command() -> Command:
        mark.unlink(missing_ok=True)
        return program(source, folder, MARK=str(mark))

    return Child(name, command, mark.exists, ready_within=ready_within, stop=stop, tier=tier)


def is_gone(pid: int) -> bool:
    """Whether no living process has that number."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def number_in(path: Path) -> Callable[[], int | None]:
    """Reads a process id that a program writes into a file, None until it is there."""

    def read() -> int | None:
        text = path.read_text() if path.exists() else ""
        return int(text) if text.endswith("\n") else None

    return read
