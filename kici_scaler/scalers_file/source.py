"""Files to plain data: bounded reading, strict YAML, and the line each thing stands on.

A scaler file may come from a pipeline or a stranger's pull request, so reading one costs
no more than its bounded size allows.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

import yaml

from kici_scaler.scalers_file.problems import Path, Problem, Refused, UnreadableScalerFile
from kici_scaler.scalers_file.yaml_data import DataBuilder

MOST_BYTES = 1024 * 1024
"""Of one file. Fifty scalers with everything written out are about 60 KiB."""


@dataclass(frozen=True, slots=True)
class Source:
    """One parsed file: its name as given, its data, and the line of each path in it.

    `size` is its length in characters.
    """

    file: str
    data: object
    lines: Mapping[Path, int]
    size: int

    def line(self, path: Path) -> int | None:
        """The line of a path, or of the nearest thing around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


def read(path: FilePath) -> Source:
    """Reads one file.

    Raises:
        UnreadableScalerFile: missing, not a regular file, no permission, too large, no text.
        Refused: it is text but not YAML as scaler files may use it.
    """
    return parse(_text(path), str(path))


def parse(text: str, file: str) -> Source:
    """Parses one YAML document; raises `Refused` with every duplicate key, or the first fault."""
    builder = DataBuilder(file)
    try:
        data = builder.build(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"is not valid YAML: {error.problem or error.context or 'syntax error'}"
        line = None if mark is None else min(mark.line, text.count("\n")) + 1
        hint = "Check the indentation, quotes and brackets there."
        raise Refused(Problem(file, "", message, hint=hint, line=line)) from error
    except yaml.YAMLError as error:
        message = "is not valid YAML: it contains characters that text does not have"
        raise Refused(Problem(file, "", message)) from error
    return Source(file, data, builder.lines, len(text))


def _text(path: FilePath) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableScalerFile(f"{path} is not a regular file")
        with path.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnreadableScalerFile(
            f"{path} cannot be read: {error.strerror or error}",
            hint="Check the path and that this user may read it.",
        ) from error
    if len(content) > MOST_BYTES:
        raise UnreadableScalerFile(
            f"{path} is larger than {MOST_BYTES // 1024} KiB",
            hint="Scaler files are small; is this the right file? Split large ones into drop-ins.",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableScalerFile(f"{path} is not UTF-8 text") from error
