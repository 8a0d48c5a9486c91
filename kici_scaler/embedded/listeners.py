"""Where the output of children goes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from kici_scaler.embedded.child import Listener

LARGEST_LOG: Final = 5 * 1024 * 1024
OLD_LOGS: Final = 1
STAMPED: Final = logging.Formatter("%(asctime)s %(message)s")


class LogFiles:
    """One bounded file a child, in `folder`; events go to `supervisor.log`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, RotatingFileHandler] = {}
        self._guard = threading.Lock()
        self._closed = False

    def line(self, name: str, text: str) -> None:
        """Append what the child wrote."""
        self._append(name, logging.makeLogRecord({"msg": text}))

    def event(self, name: str, text: str) -> None:
        """Append what became of the child."""
        record = logging.makeLogRecord({"msg": f"{name}: {text}"})
        record.msg = STAMPED.format(record)
        self._append("supervisor", record)

    def close(self) -> None:
        """Close the files; what comes later is dropped."""
        with self._guard:
            self._closed = True
            for file in self._files.values():
                file.close()

    def _append(self, name: str, record: logging.LogRecord) -> None:
        with self._guard:
            if self._closed:
                return
            if name not in self._files:
                self._files[name] = RotatingFileHandler(
                    self._folder / f"{name}.log", maxBytes=LARGEST_LOG, backupCount=OLD_LOGS
                )
            self._files[name].handle(record)


class Several:
    """Hands everything to several listeners."""

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners = tuple(listeners)

    @contextmanager
    def joined_by(self, listener: Listener) -> Iterator[None]:
        """Hand everything to this one too, until the context ends."""
        before = self._listeners
        self._listeners = (*before, listener)
        try:
            yield
        finally:
            self._listeners = before

    def line(self, name: str, text: str) -> None:
        """Hand on what the child wrote."""
        for listener in self._listeners:
            listener.line(name, text)

    def event(self, name: str, text: str) -> None:
        """Hand on what became of the child."""
        for listener in self._listeners:
            listener.event(name, text)
