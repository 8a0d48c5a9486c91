"""The bounded file that an agent's output is kept in."""

from __future__ import annotations

import os
from pathlib import Path


class Output:
    """Keeps the last part of what is written: at least `limit / 2` bytes, at most `limit`.

    The file is full at half the limit; it is then set aside as `<name>.1`, in place of the
    one set aside before, and a new one begun. A disk that is full loses lines, never the
    agent: it must not be stopped by its log.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._most = max(1, limit // 2)
        self._descriptor = self._open()
        self._size = os.fstat(self._descriptor).st_size

    def write(self, data: bytes) -> None:
        """Keep `data`, or as much of it as the disk takes."""
        view = memoryview(data)
        try:
            while view:
                if self._size >= self._most:
                    self._turn()
                written = os.write(self._descriptor, view[: self._most - self._size])
                self._size += written
                view = view[written:]
        except OSError:
            # Full, read-only or removed: the rest of this piece is lost, the next may fit.
            return

    def _turn(self) -> None:
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        fresh = self._open()
        os.close(self._descriptor)
        self._descriptor, self._size = fresh, 0

    def _open(self) -> int:
        return os.open(str(self._path), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
