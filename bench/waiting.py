"""Waiting for what a figure is about."""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE_SECONDS = 0.002
"""Between two looks, where what is waited for takes some milliseconds."""
LONG_PAUSE_SECONDS = 0.01
"""The same where it takes a second and keeps both cores busy: who looks, takes part of them."""
PATIENCE_SECONDS = 180.0


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *,
    within: float = PATIENCE_SECONDS,
    pause: float = PAUSE_SECONDS,
) -> None:
    """Poll; times in seconds.

    Raises:
        TimeoutError: it did not come true.
    """
    give_up = time.monotonic() + within
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {within:g} s: {what}")
        time.sleep(pause)
