"""What the agent keeps on disk, so that its exit and its result cannot be confused.

Two files in `KICI_AGENT_STATE_DIR`, each replaced as a whole and flushed to disk first:

- `state.json`: who the agent is, its last connection number, its resume token, its job
  and how far that is. Written before the agent promises or does anything.
- `result.json`: the job's result, there from the moment the command ended, with
  `acknowledged` once the gateway has it. A backend reads it with `read_result`.

A crash between any two writes leaves the older truth: a promise without a command, or a
command without a result, never a result without its command.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from kici_scaler.agent.codec import Malformed, dumps, from_plain, loads_object
from kici_scaler.agent.conduct import Job, State
from kici_scaler.agent.messages import JobClaim, JobResult
from kici_scaler.agent.vocabulary import JobPhase

STATE_FILE = "state.json"
RESULT_FILE = "result.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the agent is: from its environment, or from the claim it redeemed."""

    agent_id: str
    labels: tuple[str, ...]
    url: str


@dataclass(frozen=True, slots=True)
class StoredResult:
    """`result.json`."""

    agent_id: str
    job_id: str
    run_id: str
    result: JobResult
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """`state.json`: what another process of the same agent must know."""

    identity: Identity
    connection: int = 0
    """The highest connection number that may have reached a gateway."""
    resume_token: str | None = field(default=None, repr=False)
    job: JobClaim | None = None
    run_id: str = ""
    claim_digest: str | None = None
    """Of the claim code the identity was had for, if it was; the code itself is used up."""


def read_result(directory: Path) -> StoredResult | None:
    """The result an agent left in its state directory; None when its job never ended.

    Raises:
        OSError: the file is there and cannot be read.
        Malformed: the file is there and is not a result.
    """
    try:
        text = (directory / RESULT_FILE).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return from_plain(StoredResult, loads_object(text))


class Spool:
    """The state directory of one agent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def open(cls, directory: Path | None) -> Spool:
        """The spool in a directory, made if need be; a temporary one when None is given.

        Raises:
            OSError: it cannot be made.
        """
        if directory is None:
            return cls(Path(tempfile.mkdtemp(prefix="kici-agent-")))
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(directory.absolute())

    def recall(self) -> Memory | None:
        """What an earlier process left here, of this agent or another one.

        A file that cannot be understood counts as none.
        """
        try:
            text = (self.directory / STATE_FILE).read_text()
            return from_plain(Memory, loads_object(text))
        except (OSError, UnicodeDecodeError, Malformed):
            return None

    def remember(self, memory: Memory) -> None:
        """Replace `state.json`.

        Raises:
            OSError: the disk does not take it.
        """
        self._replace(STATE_FILE, memory)

    def begin_anew(self) -> None:
        """Remove what another agent, or an earlier job of this one, left."""
        for name in (STATE_FILE, RESULT_FILE):
            with contextlib.suppress(FileNotFoundError):
                (self.directory / name).unlink()

    def forget_result(self) -> None:
        """Remove `result.json`: the agent goes on to another job."""
        with contextlib.suppress(FileNotFoundError):
            (self.directory / RESULT_FILE).unlink()

    def store_result(self, result: StoredResult) -> None:
        """Replace `result.json`.

        Raises:
            OSError: the disk does not take it.
        """
        self._replace(RESULT_FILE, result)

    def state(self, memory: Memory) -> State:
        """The agent's state as an earlier process left it."""
        if memory.job is None:
            return State()
        job = Job(memory.job.job_id, memory.run_id, memory.job.phase)
        stored = self._own_result(job)
        if stored is None and job.phase is JobPhase.FINISHED:
            # Its result is lost; what is known is that its command ran.
            return State(replace(job, phase=JobPhase.RUNNING))
        if stored is None:
            return State(job)
        finished = replace(job, phase=JobPhase.FINISHED, result=stored.result)
        return State(finished, acknowledged=stored.acknowledged)

    def _own_result(self, job: Job) -> StoredResult | None:
        try:
            stored = read_result(self.directory)
        except (OSError, Malformed):
            return None
        return stored if stored is not None and stored.job_id == job.job_id else None

    def _replace(self, name: str, value: object) -> None:
        handle, temporary = tempfile.mkstemp(prefix=f".{name}-", dir=self.directory)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(dumps(value))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.directory / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        folder = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
