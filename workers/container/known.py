"""Which runtimes this machine's worker has ever used, so that an inventory lacks none of them.

A scaler may be renamed, changed or removed while its agents live; their runtime must still be
asked, also by a worker that was started since.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from filelock import FileLock

from workers.container.engine import Engine
from workers.container.place import Place, place_of
from workers.errors import NotDone


class Engines:
    """The runtimes of this machine; `folder` remembers them."""

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
        return self.at(place_of(options, self._ambient, is_usable_socket))

    def at(self, place: Place) -> Engine:
        """The runtime at a place, remembered from now on."""
        with self._lock:
            if place not in self._engines:
                self._remember(place)
                self._engines[place] = Engine(place)
            return self._engines[place]

    def all(self) -> tuple[Engine, ...]:
        """Every runtime that is remembered."""
        return tuple(map(self.at, self._read()))

    def forget(self, place: Place) -> None:
        """Ask that runtime no more: no scaler uses it, and it holds nothing of ours."""
        with self._lock:
            self._engines.pop(place, None)
            self._write(lambda known: [each for each in known if each != place])

    def _remember(self, place: Place) -> None:
        if place not in self._read():
            self._write(lambda known: [*known, place] if place not in known else known)

    def _read(self) -> list[Place]:
        try:
            said = json.loads(self._file.read_text())
            places = [Place.from_json(each) for each in said]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise NotDone(f"{self._file} cannot be read: {error}") from error
        return [each for each in places if each is not None]

    def _write(self, change: Callable[[list[Place]], list[Place]]) -> None:
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self._file.with_suffix(".lock"), timeout=10):
                text = json.dumps([each.as_json() for each in change(self._read())])
                handle, temporary = tempfile.mkstemp(prefix=".places-", dir=self._file.parent)
                with os.fdopen(handle, "w") as file:
                    file.write(text)
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
