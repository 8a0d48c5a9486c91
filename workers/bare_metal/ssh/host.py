"""The supervisor of a machine reached by SSH."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache

from kici_scaler.agent.build import zipapp_bytes
from workers.bare_metal.host import ANSWER_MARGIN_SECONDS, Answer, interpret
from workers.bare_metal.package import packed
from workers.bare_metal.ssh import remote
from workers.bare_metal.ssh.command import Ended
from workers.bare_metal.ssh.errors import Unusable
from workers.bare_metal.ssh.link import Link
from workers.bare_metal.ssh.remote import Artifact
from workers.contract import Deadline
from workers.errors import NotDone, OutcomeUnknown

_NOT_FOUND = 127
"""What a shell says of a command that is not there."""


class SshHost:
    """A machine whose supervisor is put there, checked before each use, and asked by SSH."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._folder = f"{link.target.folder.rstrip('/')}/bare-metal"

    @property
    def is_here(self) -> bool:
        """Never the worker's own host."""
        return False

    def ask(self, command: str, content: Mapping[str, object], deadline: Deadline) -> Answer:
        """As `Host.ask`; the supervisor is put there first where it is missing."""
        supervisor = _supervisor()
        line = remote.launch(self._folder, supervisor, command)
        waits = command != "hello"
        ended = self._ask(line, content, deadline, waits=waits)
        if ended.status == remote.MISSING:
            self._place(supervisor, deadline)
            ended = self._ask(line, content, deadline, waits=waits)
        if ended.status != 0:
            raise self._failure(f"the supervisor's `{command}`", ended)
        return interpret(command, _last_line(ended.output))

    def agent_command(self, deadline: Deadline) -> list[str]:
        """The reference agent as one file, run by the machine's Python."""
        return [remote.PYTHON, self.agent_file(deadline)]

    def agent_file(self, deadline: Deadline) -> str:
        """Put there where it is missing."""
        agent = _agent()
        ended = self._link.run(remote.find(self._folder, agent), b"", deadline)
        if ended.status == remote.MISSING:
            return self._place(agent, deadline)
        if ended.status != 0:
            raise NotDone(str(self._failure("looking for the agent", ended)))
        return _last_line(ended.output)

    def close(self) -> None:
        """End the connections."""
        self._link.close()

    def _ask(
        self, line: str, content: Mapping[str, object], deadline: Deadline, *, waits: bool
    ) -> Ended:
        seconds = max(0.0, deadline.remaining - ANSWER_MARGIN_SECONDS)
        order = json.dumps({**content, "deadline_seconds": seconds})
        return self._link.run(line, order.encode(), deadline, waits=waits)

    def _place(self, artifact: Artifact, deadline: Deadline) -> str:
        """Its path there.

        Raises:
            NotDone: it is not there, and what is in the way.
        """
        line = remote.place(self._folder, artifact)
        try:
            ended = self._link.run(line, artifact.content, deadline)
        except OutcomeUnknown as error:
            # Whether it lies there by now is seen at the next attempt; nothing was started.
            raise NotDone(f"putting the {artifact.stem} there: {error}") from error
        if ended.status != 0:
            raise NotDone(str(self._failure(f"putting the {artifact.stem} there", ended)))
        return _last_line(ended.output)

    def _failure(self, what: str, ended: Ended) -> NotDone | OutcomeUnknown:
        place = self._link.target.place
        said = (ended.errors.strip().splitlines() or ["no message"])[-1]
        if ended.status == _NOT_FOUND:
            return Unusable(
                f"`{place}` has no {remote.PYTHON}: {said}", hint="install Python 3.8 or newer"
            )
        if ended.status is None:
            said = f"it was killed; {said}"
        return OutcomeUnknown(f"{what} failed on `{place}`: {said}")


@lru_cache(maxsize=1)
def _supervisor() -> Artifact:
    made = packed()
    return Artifact("supervisor", made.content, made.digest)


@lru_cache(maxsize=1)
def _agent() -> Artifact:
    content = zipapp_bytes()
    return Artifact("agent", content, hashlib.sha256(content).hexdigest())


def _last_line(output: bytes) -> str:
    """The answer; a login shell's start files may have printed before it."""
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
