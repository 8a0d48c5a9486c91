"""Processes that call a backend, so that they can race each other and be killed."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


class Caller(Generic[T]):
    """A forked child that does one thing and sends back what came of it."""

    def __init__(self, act: Callable[[], T]) -> None:
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            _act(act, writer)
        os.close(writer)
        self._is_over = False

    def signal(self, number: signal.Signals) -> None:
        """Signal it; it was not waited for yet, so the pid is its own."""
        if not self._is_over:
            os.kill(self.pid, number)

    def result(self, within: float = 60.0) -> T | Exception:
        """What it returned or raised.

        Raises:
            AssertionError: it did not answer in time, or ended without an answer.
        """
        data = self._read(within)
        self.reap()
        assert data, f"caller {self.pid} ended without an answer"
        answer: T | Exception = pickle.loads(data)
        return answer

    def reap(self) -> None:
        """Wait for its end."""
        if not self._is_over:
            os.waitpid(self.pid, 0)
            os.close(self._reader)
            self._is_over = True

    def _read(self, within: float) -> bytes:
        end = time.monotonic() + within
        data = b""
        while select.select([self._reader], [], [], max(0.0, end - time.monotonic()))[0]:
            piece = os.read(self._reader, 1 << 16)
            if not piece:
                return data
            data += piece
        self.signal(signal.SIGKILL)
        raise AssertionError(f"caller {self.pid} did not answer within {within:g} s")


def _act(act: Callable[[], object], writer: int) -> None:
    try:
        try:
            answer = act()
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent judges it
            answer = error
        os.write(writer, pickle.dumps(answer))
    except BaseException:  # noqa: BLE001 - a forked child must not go on with the parent's work
        traceback.print_exc()
    finally:
        os._exit(0)
