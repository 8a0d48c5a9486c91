"""Waiting for what a test expects, and looking at the real processes it is about."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import psutil

from kici_scaler.embedded.ports import free_port

__all__ = ["eventually", "free_port", "processes_of"]

_PAUSE: Final = 0.02
_PATIENCE: Final = float(os.environ.get("KICI_TEST_PATIENCE", "3"))
"""What every limit is multiplied by: a busy machine is slow, which is no failure."""

T = TypeVar("T")


def eventually(
    condition: Callable[[], T], within: float = 10.0, *, why: str | Callable[[], str] = ""
) -> T:
    """The first true answer of `condition()`, asked again and again.

    Args:
        within: seconds it may take on an idle machine; the condition is asked at least once,
            and once more after.
        why: what was awaited, for the message of the failure; a function is called then, so
            that the message can show the state that was found instead.

    Raises:
        AssertionError: no answer was true in time.
    """
    within *= _PATIENCE
    end = time.monotonic() + within
    pause = threading.Event()
    while True:
        is_last = time.monotonic() >= end
        if answer := condition():
            return answer
        if is_last:
            awaited = why() if callable(why) else why
            raise AssertionError(f"not within {within:g} s: {awaited or condition}; got {answer!r}")
        pause.wait(_PAUSE)


def processes_of(marker: str) -> list[psutil.Process]:
    """The live processes whose environment holds `marker` in a value, in the order of their ids.

    A test that starts its processes with a marker of its own (a temporary folder, an
    installation id) finds them again however they were re-parented, and touches no others.
    What has exited but was not yet waited for is not live, and has no environment any more.
    """
    return [process for process in psutil.process_iter() if _is_marked(process, marker)]


def _is_marked(process: psutil.Process, marker: str) -> bool:
    try:
        return any(marker in value for value in process.environ().values())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
