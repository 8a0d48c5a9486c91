"""What is wrong with a scaler file, and the two errors that carry it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kici_scaler.errors import ExitCode, KiciError

Path = tuple[str | int, ...]
"""Keys and list positions from the top of a document."""

MOST_LISTED = 100
"""Further problems are counted, not listed: nobody reads more in one go."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake or warning, at one place of one file.

    Attributes:
        path: the place as people write it (`scalers[2].labelSets[0].image`); empty for the
            file as a whole.
        message: what is wrong and what is expected.
        value: what stands there now, shortened; None where showing it helps nobody.
        hint: what to do, when the message does not say it already.
    """

    file: str
    path: str
    message: str
    value: str | None = None
    hint: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        parts = [place, self.path, self.message] if self.path else [place, self.message]
        got = "" if self.value is None else f" (it is {self.value})"
        hint = f" {self.hint}" if self.hint else ""
        return f"{': '.join(parts)}{got}.{hint}"

    def as_document(self) -> dict[str, object]:
        """For programs: the fields by name, the unknown ones left out."""
        found = {
            "file": self.file,
            "line": self.line,
            "path": self.path,
            "message": self.message,
            "value": self.value,
            "hint": self.hint or None,
        }
        return {key: value for key, value in found.items() if value is not None}


class InvalidScalerFile(KiciError):
    """The scaler file breaks rules; `problems` names every one of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems[:MOST_LISTED])
        self.not_listed = len(problems) - len(self.problems)
        lines = [str(problem) for problem in self.problems]
        if self.not_listed:
            lines.append(f"and {self.not_listed} more")
        super().__init__(
            "\n".join(lines), hint="Nothing was changed; correct the file and try again."
        )


class Refused(Exception):
    """One file is no YAML that a scaler file may be; caught where files are put together."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


class UnreadableScalerFile(KiciError):
    """A scaler file, or the folder of drop-ins, cannot be read."""

    exit_code = ExitCode.UNREADABLE


def written_path(path: Path) -> str:
    """A path as people write it: `scalers[2].labelSets[0].image`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def shown(value: object) -> str:
    """A value as it may stand in a message: one short line."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "empty"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 64:
        return "a very large number"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
