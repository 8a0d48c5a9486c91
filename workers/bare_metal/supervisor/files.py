"""Small durable files, name locks and folders that appear and vanish in one step."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from .refusal import Refused

_POLL_SECONDS = 0.02


def write_json(path: Path, content: dict[str, Any], size: int = 0) -> None:
    """Replace the file in one step; once this returns the content survives a power loss.

    It has at least `size` bytes, so that `overwrite_json` has room.
    """
    fresh = path.with_name(f".{path.name}.{_unique()}")
    descriptor = os.open(str(fresh), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(content).ljust(size))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def overwrite_json(path: Path, content: dict[str, Any]) -> None:
    """Change the file in its place, which a full disk allows.

    Raises:
        OSError: there is no such file, or it is too short.
    """
    data = json.dumps(content).encode()
    descriptor = os.open(str(path), os.O_WRONLY)
    try:
        length = os.fstat(descriptor).st_size
        if len(data) > length:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.pwrite(descriptor, data.ljust(length), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any] | None:
    """The file's content; None when there is no such file.

    Raises:
        Refused: what is there is not a JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise Refused("not-done", f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise Refused("not-done", f"{path} does not hold a JSON object")
    return content


def write_secret(path: Path, text: str) -> None:
    """A new file that its owner alone can read."""
    descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power loss."""
    descriptor = os.open(str(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private(path: Path) -> Path:
    """The folder itself, made for its owner alone when it is missing."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def discard(path: Path, attic: Path) -> None:
    """Take a folder out of sight in one step, then remove it."""
    aside = attic / f"{path.name}.{_unique()}"
    try:
        make_private(attic)
        path.replace(aside)
    except FileNotFoundError:
        return
    except OSError as error:
        if not is_full(error):
            raise
        # No room for a name: out of sight in more steps than one, as far as that goes.
        remove_tree(path)
        return
    sync_folder(path.parent)
    remove_tree(aside)


def remove_tree(path: Path) -> None:
    """Remove a folder and what is in it, as far as that can be done."""
    # Loading it takes longer than most commands do, and few of them remove anything.
    import shutil

    shutil.rmtree(str(path), ignore_errors=True)


def is_full(error: OSError) -> bool:
    """Whether it is the disk that has no room, or the user's share of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _unique() -> str:
    return os.urandom(4).hex()


class Lock:
    """An advisory lock on a file, released by the kernel when its last holder ends.

    A forked child that keeps the descriptor keeps the lock.
    """

    def __init__(self, path: Path, give_up_at: float) -> None:
        self._path = path
        self._give_up_at = give_up_at
        self._descriptor = -1

    def __enter__(self) -> Lock:
        self._descriptor = self.take()
        return self

    def take(self) -> int:
        """A descriptor that holds the lock until every copy of it is closed.

        Raises:
            Refused: `unknown`, when someone else holds it until the deadline; `not-done`, when
                its file cannot be made.
        """
        while True:
            try:
                descriptor = try_lock(self._path)
            except OSError as error:
                raise Refused("not-done", f"{self._path} cannot be locked: {error}") from error
            if descriptor is not None:
                return descriptor
            if time.monotonic() >= self._give_up_at:
                raise Refused("unknown", f"another call has held {self._path} until the deadline")
            time.sleep(_POLL_SECONDS)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)


def try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock, or None when someone else does.

    A lock file that was removed meanwhile does not count: whoever comes next would lock
    another file of the same name.
    """
    descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock; False when there is no such file."""
    if not path.exists():
        return False
    descriptor = try_lock(path)
    if descriptor is None:
        return path.exists()
    os.close(descriptor)
    return False


_TAIL_BYTES = 1 << 20


def last_lines(paths: list[Path], count: int) -> list[str]:
    """The last lines of those files read one after the other, at most 1 MiB of them."""
    kept = b""
    for path in reversed(paths):
        kept = _end_of(path, _TAIL_BYTES - len(kept)) + kept
        if kept.count(b"\n") > count or len(kept) >= _TAIL_BYTES:
            break
    lines = kept.decode(errors="replace").splitlines()
    return lines[-count:] if count > 0 else []


def _end_of(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - size))
            return file.read(size)
    except FileNotFoundError:
        return b""
