"""Runs one job's command: start, time limit, stop, result."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kici_scaler.agent.conduct import Job
from kici_scaler.agent.keeper import KILL_PATIENCE_SECONDS, kill_orphans
from kici_scaler.agent.keeper_link import Ended, KeeperLink, KeeperLost, NotStarted
from kici_scaler.agent.linux import memory_kills
from kici_scaler.agent.messages import JobPayload, JobResult
from kici_scaler.agent.output import Output
from kici_scaler.agent.sandbox import sandboxed
from kici_scaler.agent.settings import job_environment
from kici_scaler.agent.vocabulary import JobStatus

DRAIN_SECONDS = 2.0
"""For output that a process which could not be killed still holds open."""


@dataclass(frozen=True, slots=True)
class Interference:
    """Why a command did not end by itself."""

    cancelled: bool
    text: str


def conclude(
    ended: Ended,
    interference: Interference | None,
    started_at: int,
    finished_at: int,
    killed_for_memory: int = 0,
) -> JobResult:
    """The result of a command that ran; times in epoch milliseconds.

    `killed_for_memory`: how many processes the kernel killed for want of memory meanwhile.
    """
    status = JobStatus.SUCCEEDED if ended.exit_code == 0 else JobStatus.FAILED
    error = None
    if interference is not None:
        status = JobStatus.CANCELLED if interference.cancelled else JobStatus.FAILED
        error = interference.text
    elif ended.signal is not None:
        error = f"killed by signal {ended.signal}"
    if killed_for_memory and interference is None and status is JobStatus.FAILED:
        error = _joined(error, f"the kernel killed {killed_for_memory} of its processes for memory")
    if ended.stuck:
        error = _joined(error, f"{ended.stuck} processes could not be killed")
    return JobResult(status, started_at, finished_at, ended.exit_code, ended.signal, error)


def _joined(error: str | None, more: str) -> str:
    return f"{error}; {more}" if error else more


def now_ms() -> int:
    """Epoch milliseconds of this machine's clock."""
    return time.time_ns() // 1_000_000


class JobRun:
    """One command, from start to the moment that nothing of it is left."""

    def __init__(
        self,
        job: Job,
        payload: JobPayload,
        keeper: KeeperLink,
        output: Output,
        *,
        grace: float,
        sandbox: bool,
    ) -> None:
        self._job = job
        self._payload = payload
        self._keeper = keeper
        self._output = output
        self._grace = grace
        self._sandbox = sandbox
        self._interference: Interference | None = None
        self._running = False
        self._work_dir: Path | None = None

    async def run(self, agent_id: str, state_dir: Path) -> JobResult:
        """Run the command in a fresh directory below `state_dir`; never raises for what a
        job can bring about, but says so in the result."""
        started_at, kills_before = now_ms(), memory_kills()
        try:
            await self._start(agent_id, state_dir)
            ended = await self._watch()
        except (NotStarted, OSError, ValueError) as problem:
            await self._output.drain(0)
            return JobResult(JobStatus.ERROR, started_at, now_ms(), error=str(problem))
        except KeeperLost:
            await asyncio.to_thread(kill_orphans, KILL_PATIENCE_SECONDS)
            await self._output.drain(DRAIN_SECONDS)
            lost = "the job's watchdog process was killed, and the job with it"
            return JobResult(JobStatus.ERROR, started_at, now_ms(), error=lost)
        finished_at = now_ms()
        await self._output.drain(DRAIN_SECONDS)
        kills = memory_kills() - kills_before
        return conclude(ended, self._interference, started_at, finished_at, kills)

    def stop(self, reason: str, grace: float) -> None:
        """End the command: TERM now, KILL after so many seconds.

        Said again, the first reason counts, and the earlier KILL.
        """
        self._interfere(Interference(cancelled=True, text=reason), grace)

    async def clean(self) -> None:
        """Remove the directory the command ran in."""
        if self._work_dir is not None:
            await asyncio.to_thread(shutil.rmtree, self._work_dir, ignore_errors=True)

    async def _start(self, agent_id: str, state_dir: Path) -> None:
        limit = self._payload.timeout_seconds
        if limit is not None and limit <= 0:
            raise ValueError("timeoutSeconds must be more than 0")
        self._work_dir = Path(tempfile.mkdtemp(prefix="work-", dir=state_dir))
        with contextlib.ExitStack() as ours:
            stdin = ours.enter_context(_input(self._payload.stdin))
            out, err = await self._output.open()
            ours.callback(os.close, out)
            ours.callback(os.close, err)
            await self._keeper.start(
                self._command(self._work_dir, state_dir),
                self._environment(agent_id),
                str(self._work_dir),
                (stdin, out, err),
            )
        self._running = True
        if self._interference is not None:
            self._keeper.terminate(self._grace)

    async def _watch(self) -> Ended:
        ending = asyncio.ensure_future(self._keeper.ended())
        limit = self._payload.timeout_seconds
        done, _ = await asyncio.wait({ending}, timeout=limit)
        if not done:
            overdue = Interference(cancelled=False, text=f"timed out after {limit:g} s")
            self._interfere(overdue, self._grace)
        return await ending

    def _interfere(self, interference: Interference, grace: float) -> None:
        self._interference = self._interference or interference
        self._grace = min(self._grace, grace)
        if self._running:
            self._keeper.terminate(self._grace)

    def _command(self, work_dir: Path, state_dir: Path) -> tuple[str, ...]:
        command = self._payload.command
        if not self._sandbox:
            return command
        if not command:
            raise ValueError("there is no command to run")
        return sandboxed(command, work_dir, state_dir)

    def _environment(self, agent_id: str) -> dict[str, str]:
        said: Mapping[str, str] = {
            "KICI_AGENT_ID": agent_id,
            "KICI_JOB_ID": self._job.job_id,
            "KICI_RUN_ID": self._job.run_id,
        }
        return job_environment(os.environ, said, self._payload.env)


@contextlib.contextmanager
def _input(text: str | None) -> Iterator[int]:
    """A file to read the command's input from; it has no name, so nobody else opens it."""
    if text is None:
        with Path(os.devnull).open("rb") as nothing:
            yield nothing.fileno()
        return
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        yield file.fileno()
