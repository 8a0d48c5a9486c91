"""Processor time of this process and of the database session it talks to.

Unlike the time on the wall it hardly depends on what else the machine does, so it is what to
compare two versions by on a busy one. Linux tells it of any process in nanoseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import Engine, text


def database_session(engine: Engine) -> int:
    """Process id of the one server process behind an engine that is used by one thread."""
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def clock_of(sessions: Sequence[int] = ()) -> Callable[[], float]:
    """A clock that advances while this process, or one of these, runs."""
    places = [Path(f"/proc/{pid}/schedstat") for pid in sessions]

    def clock() -> float:
        others = sum(int(place.read_text().split()[0]) for place in places)
        return time.process_time() + others / 1e9

    return clock
