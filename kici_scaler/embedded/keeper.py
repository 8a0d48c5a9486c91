"""One child's life: started, awaited, restarted with backoff, stopped."""

from __future__ import annotations

import signal
import threading
import time
from typing import Final

from kici_scaler.embedded.child import Child, Listener, State
from kici_scaler.embedded.errors import StartFailed
from kici_scaler.embedded.process import Process
from kici_scaler.embedded.restarts import RestartPolicy

READY_POLL: Final = 0.05
TAIL_IN_MESSAGE: Final = 12


class Keeper:
    """One child's life, in a thread that lives as long as the child."""

    def __init__(self, child: Child, listener: Listener, policy: RestartPolicy) -> None:
        self.child = child
        self.state = State.STARTING
        self.error: Exception | None = None
        self.starts = 0
        self._listener = listener
        self._policy = policy
        self._process: Process | None = None
        self._stopping = threading.Event()
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._live, name=child.name, daemon=True)

    def begin(self) -> None:
        """Start the child; returns at once."""
        self._thread.start()

    def settled(self, seconds: float) -> bool:
        """Whether, within that time, its first start has succeeded or failed."""
        return self._settled.wait(seconds)

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def send(self, number: signal.Signals) -> None:
        """Signal the child, if it runs."""
        if (process := self._process) is not None:
            process.send(number)

    def hurry(self) -> None:
        """Kill the child, in the midst of an orderly stop."""
        self._stopping.set()
        self.send(signal.SIGKILL)

    def end(self) -> None:
        """Stop the child for good; returns when it is gone."""
        self._stopping.set()
        # A process that is not known here yet is stopped by its keeper, which looks at
        # `_stopping` after making it known.
        if (process := self._process) is not None:
            process.stop(self.child.stop)
        if self._thread.is_alive():
            self._thread.join()

    def _live(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            ready_for = self._one_life()
            if self._stopping.is_set():
                break
            if not self._settled.is_set():
                self.state = State.FAILED
                self._settled.set()
                return
            failures = self._policy.failures_after(failures, ready_for)
            pause = self._policy.pause(failures)
            self.state = State.PAUSING
            self._listener.event(self.child.name, f"{self.error}; starts again in {pause:g} s")
            self._stopping.wait(pause)
        self.state = State.STOPPED
        self._settled.set()

    def _one_life(self) -> float:
        """Start, watch, reap; the seconds it was ready. `error` says why it ended."""
        self.state = State.STARTING
        try:
            return self._run_once()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the start
            self.error = error
            return 0.0

    def _run_once(self) -> float:
        command = self.child.command()
        process = Process(command, lambda text: self._listener.line(self.child.name, text))
        self._process = process
        self.starts += 1
        try:
            if not self._becomes_ready(process):
                return 0.0
            ready_at = time.monotonic()
            process.wait()
            self.error = StartFailed(_why_ended(self.child.name, process))
            return time.monotonic() - ready_at
        finally:
            process.stop(self.child.stop)

    def _becomes_ready(self, process: Process) -> bool:
        end = time.monotonic() + self.child.ready_within
        while not self._stopping.is_set():
            if process.wait(READY_POLL):
                why = _why_ended(self.child.name, process)
                self.error = StartFailed(why + _last_words(process))
                return False
            if self.child.is_ready():
                self.child.once_ready()
                self.state = State.READY
                self._listener.event(self.child.name, f"ready (pid {process.pid})")
                self._settled.set()
                return True
            if time.monotonic() > end:
                self.error = StartFailed(
                    f"{self.child.name} was not ready within {self.child.ready_within:g} s"
                    + _last_words(process)
                )
                return False
        return False


def _why_ended(name: str, process: Process) -> str:
    code = process.returncode or 0
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"{name} {how}"


def _last_words(process: Process) -> str:
    lines = process.tail()[-TAIL_IN_MESSAGE:]
    return "".join(f"\n  {line}" for line in lines)
