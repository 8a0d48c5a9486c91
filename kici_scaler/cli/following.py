"""A job at the terminal: what it waits for, its output as it comes, and how it ended."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Final, TextIO

from kici_scaler.client import (
    ClientError,
    DispatcherClient,
    JobResult,
    JobView,
    LogLine,
    RequestState,
)
from kici_scaler.errors import ExitCode

SIGNAL_BASE: Final = 128
"""A shell's way to say which signal ended a command."""

POLL_SECONDS: Final = (0.1, 1.0)
"""Between two looks at the job: first, and at most."""
LAST_LINES_SECONDS: Final = 5.0
"""How long the end of the log may come after the end of the job."""

Note = Callable[[str], None]
"""Says something about the job, apart from what the job says."""


class Overdue(Exception):
    """The caller's time is over, and the job is not."""


def exit_code_of(result: JobResult) -> int:
    """What a command that stands for a job ends with."""
    if result.exit_code is not None:
        return result.exit_code
    if result.signal is not None:
        return SIGNAL_BASE + result.signal
    return ExitCode.OK if result.succeeded else ExitCode.NEVER_RAN


class LogPrinter:
    """Copies a job's output, in a thread of its own.

    What the job writes to its standard error goes to standard error, the rest to `output`.
    """

    def __init__(self, scaler: DispatcherClient, job_id: str, output: TextIO, note: Note) -> None:
        self._lines = scaler.log(job_id)
        self._output = output
        self._note = note
        self._thread = threading.Thread(target=self._copy, name="job-log", daemon=True)

    def start(self) -> None:
        """Begin to copy."""
        self._thread.start()

    def finish(self) -> None:
        """Wait for the log's end; not for long, since the job is over."""
        self._thread.join(LAST_LINES_SECONDS)

    def _copy(self) -> None:
        try:
            for line in self._lines:
                print_line(line, self._output)
        except ClientError as error:
            self._note(f"no more output: {error}")
        except BrokenPipeError:
            return


def print_line(line: LogLine, output: TextIO) -> None:
    """Print a line of a job's output where it belongs."""
    print(line.text, file=output if line.stream == "stdout" else sys.stderr, flush=True)


def wait_for_end(
    scaler: DispatcherClient, job_id: str, note: Note, *, seconds: float | None = None
) -> JobResult:
    """Look at the job until it is over, and note what it waits for and where it runs.

    Raises:
        Overdue: not over within `seconds`.
        ClientError: the gateway does not answer, or knows no such job.
    """
    give_up_at = None if seconds is None else time.monotonic() + seconds
    pause, longest = POLL_SECONDS
    told = ""
    while True:
        seen = scaler.get(job_id)
        if seen.state.is_over:
            return scaler.wait(job_id, timeout=1.0)
        said = describe(seen)
        if said != told:
            note(said)
            told, pause = said, POLL_SECONDS[0]
        if give_up_at is not None and time.monotonic() + pause > give_up_at:
            raise Overdue
        time.sleep(pause)
        pause = min(longest, pause * 1.5)


def describe(seen: JobView) -> str:
    """A job that is not over, in one line."""
    match seen.state:
        case RequestState.RUNNING:
            return f"runs on {seen.agent_id}"
        case RequestState.ASSIGNED:
            return f"starts on {seen.agent_id} of {seen.scaler}"
        case _:
            return f"waits: {seen.reason}" if seen.reason else "waits"
