"""What a machine remembers of each agent: the fence, and where its microVM lies.

One small file an agent and installation, one lock beside it, in the worker's own state. What
lies beside the microVM says itself what it is; this says what must still hold when nothing is
there: that a newer lease was here, that the agent was destroyed, that something was begun.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from filelock import FileLock, Timeout

from workers.contract import Deadline
from workers.errors import NotDone, NotOwner
from workers.firecracker.layout import JAILS, Layout
from workers.network.access import Owner

KEPT_SECONDS = 7 * 86_400.0
"""A record outlives its agent by this much; far beyond any lease and any agent's life."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of one agent."""

    token: int = 0
    """The highest lease token that touched it."""
    is_destroyed: bool = False
    is_ending: bool = False
    """A destroy has begun: whatever ends from now on was stopped."""
    base: str = ""
    """The chroot base it lies below; empty while nothing was begun."""
    program: str = JAILS
    scaler: str = ""
    has_run: bool = False
    """A start was begun at some time: what ran under the name is never started again."""
    tap: str = ""
    """Its interface's name, once it has one."""
    is_told: bool = False
    """Its guest was handed the agent's token."""
    is_cleared: bool = False
    """And that was taken away again, after the agent had read it."""

    @property
    def has_begun(self) -> bool:
        """Whether anything of it may be on this machine."""
        return bool(self.base) and not self.is_destroyed

    def layout(self, agent_id: str) -> Layout | None:
        """Where it lies; None when nothing was begun."""
        return Layout(Path(self.base), agent_id, self.program) if self.base else None

    def require(self, token: int, *, to_start: bool = False) -> None:
        """See whether a call with that token may act.

        Raises:
            NotOwner: a newer one was here, or a destroy that was not older.
        """
        if token > self.token or (token == self.token and not (to_start and self.is_destroyed)):
            return
        raise NotOwner(f"lease token {token} is not newer than {self.token}, which was here")


class Held:
    """The record of one agent, while nobody else holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.record = _read(path)

    def save(self, **changed: object) -> Record:
        """Change the record; the whole of it is written or nothing."""
        self.record = replace(self.record, **changed)  # type: ignore[arg-type]  # by field name
        write_whole(self._path, asdict(self.record))
        return self.record


class Records:
    """The records in a folder of this machine's state."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def held(self, owner: Owner, deadline: Deadline) -> Iterator[Held]:
        """Hold the agent's record: no other process or thread changes this agent meanwhile.

        Raises:
            NotDone: somebody else holds it for too long, or nothing can be kept here.
        """
        path = self._path(owner)
        with locked(path.with_suffix(".lock"), f"busy with {owner.agent_id}", deadline):
            yield Held(path)

    def look(self, owner: Owner) -> Record:
        """The record as it is now; an empty one when there is none."""
        return _read(self._path(owner))

    def begun(self, installation_id: str) -> Mapping[str, Record]:
        """Of an installation's agents, those of which anything may be here."""
        head = f"{quote(installation_id, '')}--"
        found: dict[str, Record] = {}
        for path in sorted(self._folder.glob(f"{head}*.json")):
            record = _read(path)
            if record.has_begun:
                found[unquote(path.stem.removeprefix(head))] = record
        return found

    def bases(self) -> frozenset[Path]:
        """Every chroot base that is remembered."""
        known = (_read(path).base for path in self._folder.glob("*.json"))
        return frozenset(Path(each) for each in known if each)

    def prune(self, now: float) -> None:
        """Remove what is long past; `now` in epoch seconds."""
        for path in self._folder.glob("*.json"):
            with suppress(FileNotFoundError):
                is_old = path.stat().st_mtime < now - KEPT_SECONDS
                if is_old and not _read(path).has_begun:
                    path.unlink()
                    path.with_suffix(".lock").unlink()

    def _path(self, owner: Owner) -> Path:
        name = f"{quote(owner.installation_id, '')}--{quote(owner.agent_id, '')}.json"
        return self._folder / name


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


def _read(path: Path) -> Record:
    try:
        return Record(**json.loads(path.read_text()))
    except FileNotFoundError:
        return Record()
    except (OSError, ValueError, TypeError) as error:
        raise NotDone(f"the record {path} cannot be read: {error}") from error
