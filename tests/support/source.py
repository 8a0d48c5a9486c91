"""The repository's own source, as the structure tests read it."""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("config", "kici_scaler", "workers", "tasks")
"""The importable packages, from the innermost outwards."""

_NOT_SOURCE = {".git", ".venv", "build", "dist", "__pycache__", "node_modules"}


@dataclass(frozen=True)
class Module:
    """One Python file of the repository."""

    path: Path

    @property
    def place(self) -> str:
        """The path from the repository's root, for messages."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def name(self) -> str:
        """The dotted name it is imported by."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    def comments(self) -> Iterator[tuple[int, str]]:
        """Each comment with its line, starting at 1; never text inside a string."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def modules_of(*folders: str) -> list[Module]:
    """Every Python file under these folders of the repository, in the order of their paths."""
    files = (file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return [Module(file) for file in sorted(files) if not _NOT_SOURCE & set(file.parts)]


def files_of_tree() -> list[Path]:
    """Every file that is published, and those that are about to be."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True, text=True,
        ).stdout  # fmt: skip
    except (FileNotFoundError, subprocess.CalledProcessError):
        return files_to_publish()
    return [file for name in listed.split("\0") if name and (file := ROOT / name).is_file()]


def files_to_publish() -> list[Path]:
    """Every file that a reader of the repository gets.

    The tracked ones in a checkout, every source file in an unpacked archive, where git knows
    nothing.
    """
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        every = (file for file in ROOT.rglob("*") if not _NOT_SOURCE & set(file.parts))
        return sorted(file for file in every if file.is_file())
    files = (ROOT / name for name in listed.split("\0") if name)
    return [file for file in files if file.is_file()]
