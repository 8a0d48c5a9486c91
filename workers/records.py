"""What a worker's machine remembers of each agent: the fence, and what a backend adds to it.

One small file an agent and installation, and one lock beside it, in the worker's own state. The
compute says itself what it is; this says what must still hold when there is none: that a newer
lease was here, that the agent was destroyed, that something was begun and may yet happen.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote, unquote

from filelock import FileLock, Timeout

from workers.contract import Deadline
from workers.errors import NotDone, NotOwner
from workers.network.access import Owner

KEPT_SECONDS = 7 * 86_400.0
"""A record outlives its agent by this much; far beyond any lease and any agent's life."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """What every backend remembers of an agent; each adds its own."""

    token: int = 0
    """The highest lease token that touched it."""
    is_destroyed: bool = False
    is_ending: bool = False
    """A destroy has begun: whatever ends from now on was stopped."""

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """The record that was written as that."""
        return cls(**said)

    def as_json(self) -> Mapping[str, Any]:
        """What is written of it."""
        return asdict(self)

    def require(self, token: int, *, to_start: bool = False) -> None:
        """See whether a call with that token may act.

        Raises:
            NotOwner: a newer one was here, or a destroy that was not older.
        """
        if token > self.token or (token == self.token and not (to_start and self.is_destroyed)):
            return
        raise NotOwner(f"lease token {token} is not newer than {self.token}, which was here")


R = TypeVar("R", bound=Fenced)


class Held(Generic[R]):
    """The record of one agent, while nobody else holds it."""

    def __init__(self, path: Path, record: R) -> None:
        self._path = path
        self.record = record

    def save(self, **changed: object) -> R:
        """Change the record; the whole of it is written or nothing."""
        self.record = replace(self.record, **changed)  # type: ignore[arg-type]  # by field name
        write_whole(self._path, self.record.as_json())
        return self.record


class FencedRecords(Generic[R]):
    """The records of one kind in a folder of this machine's state."""

    def __init__(self, folder: Path, kind: type[R]) -> None:
        self._folder = folder
        self._kind = kind

    @contextmanager
    def held(self, owner: Owner, deadline: Deadline) -> Iterator[Held[R]]:
        """Hold the agent's record: no other process or thread changes this agent meanwhile.

        Raises:
            NotDone: somebody else holds it for too long, or nothing can be kept here.
        """
        path = self._path(owner)
        with locked(path.with_suffix(".lock"), f"busy with {owner.agent_id}", deadline):
            yield Held(path, self._read(path))

    def is_held(self, owner: Owner) -> bool:
        """Whether a call is changing this agent at this moment."""
        lock = FileLock(self._path(owner).with_suffix(".lock"), timeout=0)
        try:
            with lock:
                return False
        except Timeout:
            return True
        except OSError:
            return False

    def look(self, owner: Owner) -> R:
        """The record as it is now; an empty one when there is none."""
        return self._read(self._path(owner))

    def every(self, installation_id: str) -> Iterator[tuple[str, R]]:
        """The agents of an installation that are remembered, with their records."""
        head = f"{quote(installation_id, '')}--"
        for path in sorted(self._folder.glob(f"{head}*.json")):
            yield unquote(path.stem.removeprefix(head)), self._read(path)

    def prune(self, now: float) -> None:
        """Remove what is long past; `now` in epoch seconds."""
        for path in self._folder.glob("*.json"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < now - KEPT_SECONDS and self._may_go(path):
                    path.unlink()
                    path.with_suffix(".lock").unlink()

    def _may_go(self, _path: Path) -> bool:
        """Whether a record that is long past is of no use any more."""
        return True

    def _path(self, owner: Owner) -> Path:
        name = f"{quote(owner.installation_id, '')}--{quote(owner.agent_id, '')}.json"
        return self._folder / name

    def _read(self, path: Path) -> R:
        try:
            return self._kind.from_json(json.loads(path.read_text()))
        except FileNotFoundError:
            return self._kind()
        except (OSError, ValueError, TypeError) as error:
            raise NotDone(f"the record {path} cannot be read: {error}") from error


@contextmanager
def locked(path: Path, at: str, deadline: Deadline) -> Iterator[None]:
    """Hold a lock file of this machine.

    Raises:
        NotDone: somebody else holds it for too long, or it cannot be used.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(path, timeout=deadline.remaining)
        lock.acquire()
    except Timeout as error:
        raise NotDone(f"somebody else is {at} for too long") from error
    except OSError as error:
        raise NotDone(f"the lock {path} cannot be used: {error}") from error
    try:
        yield
    finally:
        lock.release()


def write_whole(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, the whole of it or nothing.

    Raises:
        NotDone: it cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump(content, file)
        Path(temporary).replace(path)
    except OSError as error:
        raise NotDone(f"{path} cannot be written: {error}") from error
