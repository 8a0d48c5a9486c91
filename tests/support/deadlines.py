"""Waiting on conditions instead of sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

PAUSE: Final = 0.02


def wait_until(
    condition: Callable[[], object],
    within: float = 10.0,
    *,
    because: str | Callable[[], str] = "",
) -> None:
    """Return as soon as `condition()` is true.

    Args:
        within: seconds it may take.
        because: what was awaited, for the message of the failure.

    Raises:
        AssertionError: it was still false after `within`.
    """
    end = time.monotonic() + within
    pause = threading.Event()
    while not condition():
        if time.monotonic() > end:
            awaited = because() if callable(because) else because
            raise AssertionError(f"not within {within:g} s: {awaited or condition}")
        pause.wait(PAUSE)
