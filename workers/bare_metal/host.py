"""Asking the supervisor of a machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kici_scaler.agent.build import build_zipapp, content_digest
from workers.bare_metal.package import packed
from workers.bare_metal.supervisor.order import ALLOWED
from workers.contract import Deadline
from workers.errors import BackendError, NotDone, NotOwner, OutcomeUnknown, Permanent

ANSWER_MARGIN_SECONDS = 1.0
"""How much earlier than its caller a supervisor gives up, so that its answer arrives."""

_ERRORS: Mapping[str, type[BackendError]] = {
    "not-owner": NotOwner,
    "not-done": NotDone,
    "unknown": OutcomeUnknown,
    "permanent": Permanent,
    "ended": Permanent,
}


class Host(Protocol):
    """A machine whose supervisor can be asked."""

    @property
    def is_here(self) -> bool:
        """Whether it is the worker's own host."""

    def ask(self, command: str, content: Mapping[str, object], deadline: Deadline) -> Answer:
        """The supervisor's answer.

        Raises:
            BackendError: what the supervisor's refusal means.
            OutcomeUnknown: no answer came.
        """

    def agent_command(self, deadline: Deadline) -> list[str]:
        """What runs the reference agent of this installation there.

        Raises:
            BackendError: it could not be put there.
        """

    def agent_file(self, deadline: Deadline) -> str:
        """The path there of the reference agent as one file, for containers.

        Raises:
            BackendError: it could not be put there.
        """

    def close(self) -> None:
        """Let go of what is held open; it can be asked again."""


Answer = Mapping[str, Any]
"""A JSON object; the caller validates it."""


class LocalHost:
    """The worker's own host: the supervisor runs as a child process."""

    def __init__(self, folder: Path, ambient: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {key: ambient[key] for key in ALLOWED if key in ambient}

    def ask(self, command: str, content: Mapping[str, object], deadline: Deadline) -> Answer:
        seconds = max(0.0, deadline.remaining - ANSWER_MARGIN_SECONDS)
        text = json.dumps({**content, "deadline_seconds": seconds})
        try:
            done = subprocess.run(
                self._command_line(command),
                input=text,
                capture_output=True,
                text=True,
                timeout=max(0.1, deadline.remaining),
                env=self._environment,
                cwd=os.sep,
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise OutcomeUnknown(f"the supervisor's `{command}` did not answer in time") from error
        except OSError as error:
            raise NotDone(f"the supervisor cannot be run: {error}") from error
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise OutcomeUnknown(f"the supervisor's `{command}` failed: {last}")
        return interpret(command, done.stdout)

    @property
    def is_here(self) -> bool:
        """Always."""
        return True

    def agent_command(self, _deadline: Deadline) -> list[str]:
        """The one that is installed beside this worker."""
        return [sys.executable, "-m", "kici_scaler.agent"]

    def agent_file(self, _deadline: Deadline) -> str:
        """Beside the supervisor, by its content."""
        target = self._folder / f"agent-{content_digest()[:16]}.pyz"
        try:
            return str(target if target.is_file() else build_zipapp(target))
        except OSError as error:
            raise NotDone(f"{target} cannot be written: {error}") from error

    def close(self) -> None:
        """Nothing is held."""

    def _command_line(self, command: str) -> list[str]:
        program = packed().install(self._folder)
        return [sys.executable, "-I", "-S", str(program), "--root", str(self._folder), command]


def interpret(command: str, text: str) -> Answer:
    """The answer in a supervisor's output.

    Raises:
        BackendError: the supervisor refused, or this is not an answer.
    """
    try:
        answer: Answer = json.loads(text)
        if answer["ok"]:
            return answer
        kind, message = _ERRORS[answer["code"]], str(answer["message"])
    except (ValueError, KeyError, TypeError) as error:
        raise OutcomeUnknown(f"the supervisor's `{command}` answered nonsense") from error
    cause = answer.get("cause") or {}
    said = f"{message}: {cause['detail']}" if cause.get("detail") else message
    job_caused = answer.get("job_caused") is True
    raise kind(said, job_caused=job_caused, log_tail=cause.get("log_tail", ()))
