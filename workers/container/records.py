"""What a worker's machine remembers of each agent: the fence, and what was begun.

One small file an agent and installation, and one lock beside it. A container says itself what
it is; this says what must still hold when there is no container: that a newer lease was here,
that the agent was destroyed, that a creation was begun and may yet happen.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import quote

from filelock import FileLock, Timeout

from workers.container.place import Place
from workers.contract import Deadline
from workers.errors import NotDone, NotOwner
from workers.network.access import Owner

KEPT_SECONDS = 7 * 86_400.0
"""A record outlives its agent by this much; far beyond any lease and any agent's life."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of one agent. Times in epoch seconds."""

    token: int = 0
    """The highest lease token that touched it."""
    is_destroyed: bool = False
    is_ending: bool = False
    """A destroy has begun: whatever ends from now on was stopped."""
    began_making_at: float | None = None
    """Since when a creation may be under way; None when none is."""
    has_begun: bool = False
    """A creation was begun at some time; without one, there never was a container."""
    place: Place | None = None
    is_isolated: bool = False
    """Network rules may stand for it."""

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

    def begin(self, *, is_isolated: bool) -> None:
        """Note that a creation may happen from now on, whatever becomes of this process."""
        self.save(began_making_at=time.time(), has_begun=True, is_isolated=is_isolated)

    def save(self, **changed: object) -> Record:
        """Change the record; the whole of it is written or nothing."""
        self.record = replace(self.record, **changed)  # type: ignore[arg-type]  # by field name
        text = json.dumps({**asdict(self.record), "place": _place_of(self.record)})
        handle, temporary = tempfile.mkstemp(prefix=".record-", dir=self._path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(temporary).replace(self._path)
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
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FileLock(path.with_suffix(".lock"), timeout=deadline.remaining)
            lock.acquire()
        except Timeout as error:
            raise NotDone(f"somebody else is busy with {owner.agent_id} for too long") from error
        except OSError as error:
            raise NotDone(f"no record can be kept in {self._folder}: {error}") from error
        try:
            yield Held(path)
        finally:
            lock.release()

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

    def look(self, owner: Owner) -> Record:
        """The record as it is now; an empty one when there is none."""
        return _read(self._path(owner))

    def prune(self, now: float) -> None:
        """Remove what is long past; `now` in epoch seconds."""
        for path in self._folder.glob("*.json"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < now - KEPT_SECONDS:
                    path.unlink()
                    path.with_suffix(".lock").unlink()

    def _path(self, owner: Owner) -> Path:
        return (
            self._folder / f"{quote(owner.installation_id, '')}--{quote(owner.agent_id, '')}.json"
        )


def _read(path: Path) -> Record:
    try:
        said = json.loads(path.read_text())
    except FileNotFoundError:
        return Record()
    except (OSError, ValueError) as error:
        raise NotDone(f"the record {path} cannot be read: {error}") from error
    place = Place.from_json(said.pop("place") or {})
    return Record(**said, place=place)


def _place_of(record: Record) -> dict[str, str] | None:
    return record.place.as_json() if record.place else None
