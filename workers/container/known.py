"""Which runtimes this machine's worker has ever used, so that an inventory lacks none of them.

A scaler may be renamed, changed or removed while its agents live; their runtime must still be
asked, also by a worker that was started since.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from filelock import FileLock

from workers.container.engine import Engine
from workers.container.place import Place, place_of
from workers.errors import NotDone

REMIND_SECONDS = 3600.0
"""How often it is noted that a runtime is wanted still."""


class Engines:
    """The runtimes of this machine; `folder` remembers them, and when each was last wanted."""

    def __init__(self, folder: Path, ambient: Mapping[str, str]) -> None:
        self._file = folder / "places.json"
        self._ambient = ambient
        self._engines: dict[Place, Engine] = {}
        self._lock = Lock()

    def for_options(self, options: Mapping[str, Any]) -> Engine:
        """The runtime of a scaler with these options, remembered from now on.

        Raises:
            NotDone: there is none.
        """
        engine = self.looked_up(options)
        self._remember(engine.place)
        return engine

    def looked_up(self, options: Mapping[str, Any]) -> Engine:
        """The same, not remembered: nothing of ours will be there because of this."""
        return self.at(place_of(options, self._ambient, is_usable_socket))

    def at(self, place: Place) -> Engine:
        """The runtime at a place."""
        with self._lock:
            return self._engines.setdefault(place, Engine(place))

    def all(self) -> tuple[Engine, ...]:
        """Every runtime that is remembered."""
        return tuple(map(self.at, self._read()))

    def forget(self, place: Place, *, unwanted_for: float = 0.0) -> None:
        """Ask that runtime no more, unless some scaler wanted it in the last so many seconds."""
        if self._read().get(place, 0.0) + unwanted_for <= time.time():
            self._write(lambda known: known.pop(place, None))

    def _remember(self, place: Place) -> None:
        now = time.time()
        if self._read().get(place, 0.0) + REMIND_SECONDS < now:
            self._write(lambda known: known.update({place: now}))

    def _read(self) -> dict[Place, float]:
        """When each was last wanted, in epoch seconds."""
        try:
            said = json.loads(self._file.read_text())
            found = [(Place.from_json(each), float(each["wanted_at"])) for each in said]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NotDone(f"{self._file} cannot be read: {error}") from error
        return {place: wanted_at for place, wanted_at in found if place is not None}

    def _write(self, change: Callable[[dict[Place, float]], object]) -> None:
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self._file.with_suffix(".lock"), timeout=10):
                known = self._read()
                change(known)
                said = [{**place.as_json(), "wanted_at": at} for place, at in known.items()]
                handle, temporary = tempfile.mkstemp(prefix=".places-", dir=self._file.parent)
                with os.fdopen(handle, "w") as file:
                    file.write(json.dumps(said))
                Path(temporary).replace(self._file)
        except OSError as error:
            raise NotDone(f"{self._file} cannot be written: {error}") from error


def is_usable_socket(path: str) -> bool:
    """Whether a path is a socket that this process may read and write."""
    try:
        is_socket = stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False
    return is_socket and os.access(path, os.R_OK | os.W_OK)
