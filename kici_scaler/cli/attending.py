"""One job from its request to its exit code, also when the person at the terminal leaves."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, Final, NoReturn

from rich.console import Console
from rich.text import Text

from kici_scaler.cli.following import LogPrinter, Note, Overdue, exit_code_of, wait_for_end
from kici_scaler.cli.output import print_json
from kici_scaler.client import (
    DispatcherClient,
    JobRequest,
    JobResult,
    RequestAnswer,
    RequestResult,
    RequestState,
)
from kici_scaler.errors import ExitCode, KiciError

CANCEL_SECONDS: Final = 60.0
"""How long a job that was called off may take to end before the command leaves."""

HOPELESS: Final = frozenset({RequestResult.NO_BACKEND, RequestResult.FAILED})
"""Answers to a request that would wait for what will not come by itself."""


class NeverRan(KiciError):
    """The job was not served; nothing of it is left."""

    exit_code = ExitCode.NEVER_RAN


@dataclass(frozen=True, slots=True)
class Manner:
    """How a job is attended: whether its end is awaited, for how long, and what is printed."""

    wait: bool = True
    seconds: float | None = None
    quiet: bool = False
    as_json: bool = False


def attend(scaler: DispatcherClient, wanted: JobRequest, manner: Manner) -> int:
    """Request a job and stay with it; the exit code that stands for it.

    Raises:
        NeverRan: nothing serves it, or it was refused.
        ClientError: the gateway does not answer; the job may go on.
    """
    return _Attendance(scaler, wanted, manner).run()


class _Attendance:
    def __init__(self, scaler: DispatcherClient, wanted: JobRequest, manner: Manner) -> None:
        self._scaler = scaler
        self._wanted = wanted
        self._job_id = wanted.job_id
        self._manner = manner
        self._note = _silence if manner.quiet else notes_of(wanted.job_id)

    def run(self) -> int:
        with _terminated_like_interrupted():
            try:
                return self._run()
            except KeyboardInterrupt:
                return self._call_off("interrupted at the terminal", ExitCode.INTERRUPTED)
            except Overdue:
                why = f"not over within {self._manner.seconds:g} s"
                self._note(why)
                return self._call_off(why, ExitCode.TIMED_OUT)

    def _run(self) -> int:
        answer = self._scaler.request(self._wanted)
        self._require_served(answer)
        if not self._manner.wait:
            print_json(plain(answer)) if self._manner.as_json else print(self._job_id)
            return ExitCode.OK
        output = sys.stderr if self._manner.as_json else sys.stdout
        printer = LogPrinter(self._scaler, self._job_id, output, self._note)
        printer.start()
        result = wait_for_end(self._scaler, self._job_id, self._note, seconds=self._manner.seconds)
        printer.finish()
        return self._tell(result)

    def _require_served(self, answer: RequestAnswer) -> None:
        if answer.state is RequestState.REFUSED:
            raise NeverRan(f"the job was refused: {answer.reason}")
        if answer.result not in HOPELESS:
            return
        if self._scaler.get(self._job_id).reason == answer.reason:
            self._scaler.cancel(self._job_id, reason="nothing serves it")
        labels = ",".join(self._wanted.labels)
        raise NeverRan(
            answer.reason or f"nothing serves the labels {labels}",
            hint=f"`kici-scaler can-serve --labels {labels}` says what is missing.",
        )

    def _tell(self, result: JobResult) -> int:
        code = exit_code_of(result)
        if self._manner.as_json:
            print_json({**plain(result), "exitCode": result.exit_code})
        if code == ExitCode.NEVER_RAN and result.exit_code is None:
            _raise_unknown_end(result)
        after = ""
        if result.started_at and result.finished_at:
            after = f" after {(result.finished_at - result.started_at).total_seconds():.1f} s"
        self._note(f"{result.state} with exit code {code}{after}")
        return code

    def _call_off(self, why: str, code: ExitCode) -> int:
        """Cancel and see it end; a second Ctrl-C leaves without looking."""
        try:
            self._note("cancelling the job; Ctrl-C leaves without waiting for its end")
            self._scaler.cancel(self._job_id, reason=why)
            result = wait_for_end(self._scaler, self._job_id, _silence, seconds=CANCEL_SECONDS)
            if self._manner.as_json:
                print_json(plain(result))
            self._note(f"{result.state}")
        except (KeyboardInterrupt, Overdue):
            self._note(f"not over yet: `kici-scaler requests show {self._job_id}` tells")
        return code


def _raise_unknown_end(result: JobResult) -> NoReturn:
    raise NeverRan(
        f"job {result.job_id} {result.state} without an exit code: {result.error or 'no reason'}",
        hint=f"`kici-scaler requests show {result.job_id}` tells more.",
    )


def plain(value: RequestAnswer | JobResult) -> dict[str, Any]:
    """A result for programs, in the gateway's spelling."""
    return {_camel(name): each for name, each in asdict(value).items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def notes_of(job_id: str) -> Note:
    """Notes about a job, on standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    return lambda text: console.print(Text(f"{job_id}: {text}", style="dim"))


def _silence(_text: str) -> None:
    """Say nothing."""


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM calls the job off too, as it comes from a CI system that cancels a step."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
