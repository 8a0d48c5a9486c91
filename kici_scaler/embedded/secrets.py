"""Generated secrets of an installation: one file each, for its owner's eyes only."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

SECRET_BYTES: Final = 24


def secret_path(home: Path, name: str) -> Path:
    """Where the secret of that name is kept."""
    return home / "secrets" / name


def random_secret() -> str:
    """Letters, digits, `-` and `_`, safe in URLs and files."""
    return secrets.token_urlsafe(SECRET_BYTES)


def read_or_make_secret(home: Path, name: str, make: Callable[[], str] = random_secret) -> str:
    """The secret of that name, made on first use."""
    path = secret_path(home, name)
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_secret(path, make())
    return path.read_text().strip()


def write_secret(path: Path, value: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(value + "\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
