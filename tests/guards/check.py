"""Takes guards away, one at a time, in a copy of the tree, and runs the tests that must notice.

The working tree is never touched. A guard is caught when its tests fail without it; tests that
pass, or that cannot even be collected, do not count.
"""

from __future__ import annotations

import enum
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PATIENCE: Final = 600.0
"""Seconds the tests of one guard may take; a hang is not a failure that anyone would read."""


class Outcome(enum.StrEnum):
    """What became of the tests once the guard was gone."""

    CAUGHT = "caught"
    MISSED = "MISSED"
    """Every test passed: nothing holds this guard in its place."""
    BROKEN = "BROKEN"
    """The tests did not run (an import or syntax error, a hang): nothing is shown."""
    SKIPPED = "SKIPPED"
    """None failed, but some were skipped: a part that they need is not on this machine."""
    RED = "RED"
    """A test of it fails with every guard in place, so it shows nothing either."""


_MEANS: Final[dict[int | None, Outcome]] = {0: Outcome.MISSED, 1: Outcome.CAUGHT}
"""What pytest's exit code says of the guard; every other code means that tests did not run."""


@dataclass(frozen=True)
class Verdict:
    """An outcome, and the test that noticed ('' when none did)."""

    outcome: Outcome
    by: str = ""


class StaleGuard(Exception):
    """The list names code that is not there, or is there more than once."""


@dataclass(frozen=True)
class Guard:
    """A piece of code that keeps an invariant, and the tests that must fail without it.

    Attributes:
        name: what it guards, in a few words; unique.
        file: path from the repository's root.
        code: the text to take away; stands in the file exactly once.
        instead: the text put in its place, such that the file still works.
        tests: what to hand to pytest.
    """

    name: str
    file: str
    code: str
    instead: str
    tests: tuple[str, ...]

    def has_one_of(self, failed: Collection[str]) -> bool:
        """Whether one of its tests is among these."""
        return any(name.startswith(test) for name in failed for test in self.tests)

    def taken_from(self, text: str) -> str:
        """The file's text without the guard.

        Raises:
            StaleGuard.
        """
        found = text.count(self.code)
        if found != 1:
            raise StaleGuard(
                f"{self.name}: its code stands {found} times in {self.file}, not once; "
                f"correct the list:\n{self.code}"
            )
        return text.replace(self.code, self.instead)


def read_guards(file: Path) -> list[Guard]:
    """The guards of a TOML file with one `[[guard]]` table each."""
    tables = tomllib.loads(file.read_text(encoding="utf-8")).get("guard", [])
    return [Guard(**{**table, "tests": tuple(table["tests"])}) for table in tables]


def copy_tree(root: Path, files: Sequence[Path], target: Path) -> None:
    """Copy these files of `root`, with their folders, to `target`."""
    for file in files:
        copy = target / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)


@dataclass(frozen=True)
class Ran:
    """What pytest did: its exit code (None: hung), what failed, and its last lines."""

    code: int | None
    failed: tuple[str, ...] = ()
    last_words: str = ""
    skipped: bool = False

    @property
    def outcome(self) -> Outcome:
        """What it says of a guard that was away."""
        outcome = _MEANS.get(self.code, Outcome.BROKEN)
        return Outcome.SKIPPED if outcome is Outcome.MISSED and self.skipped else outcome


def run_tests(
    tree: Path, tests: Sequence[str], *options: str, more: Mapping[str, str] | None = None
) -> Ran:
    """Run these tests of a tree.

    Args:
        options: further ones of pytest.
        more: variables beside those of this process.
    """
    command = [
        sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *options, *tests,
    ]  # fmt: skip
    environment = {
        **os.environ, **(more or {}), "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, timeout=PATIENCE, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Ran(None)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    skipped = re.search(r"^(?:\d+ \w+, )*\d+ skipped", done.stdout, flags=re.MULTILINE) is not None
    last_words = done.stdout[-2_000:] + done.stderr[-2_000:]
    return Ran(done.returncode, tuple(failed), last_words, skipped)


def without(guard: Guard, tree: Path, more: Mapping[str, str] | None = None) -> Verdict:
    """What the guard's tests say of a tree that lacks it; the tree is whole again afterwards.

    Raises:
        StaleGuard.
    """
    file = tree / guard.file
    whole = file.read_text(encoding="utf-8")
    file.write_text(guard.taken_from(whole), encoding="utf-8")
    try:
        ran = run_tests(tree, guard.tests, "-x", more=more)
    finally:
        file.write_text(whole, encoding="utf-8")
    return Verdict(ran.outcome, next(iter(ran.failed), ""))
