"""The main file and its drop-ins as one document that remembers where each part came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kici_scaler.scalers_file.explain_errors import Finding
from kici_scaler.scalers_file.problems import Path, Problem, Refused, shown, written_path
from kici_scaler.scalers_file.source import Source

_MAY_STAND_IN_A_DROP_IN = {"scalers", "version", "$schema"}


@dataclass(frozen=True, slots=True)
class Merged:
    """One document of several files.

    Attributes:
        files: what was merged, in order.
        origins: for each scaler of the document, its file and its position there.
    """

    main: Source
    document: dict[str, Any]
    files: tuple[str, ...]
    origins: tuple[tuple[Source, int], ...]
    warnings: tuple[Problem, ...] = ()

    def problem(self, finding: Finding) -> Problem:
        """The finding, placed in the file it came from."""
        source, path = self._origin(finding.path)
        return Problem(
            source.file,
            written_path(path),
            finding.message,
            finding.value,
            finding.hint,
            source.line(path),
        )

    def place(self, path: Path) -> str:
        """Where a path of the document stands: `file:line`."""
        source, path = self._origin(path)
        return f"{source.file}:{source.line(path) or 1}"

    def _origin(self, path: Path) -> tuple[Source, Path]:
        match path:
            case ("scalers", int(index), *rest) if index < len(self.origins):
                source, position = self.origins[index]
                return source, ("scalers", position, *rest)
        return self.main, path


def merge(main: Source, drop_ins: Sequence[Source]) -> Merged:
    """Appends the scalers of the drop-ins, in the order given.

    Raises:
        Refused: the main file is empty or no mapping, or a drop-in cannot be merged.
    """
    problems = [*_main_problems(main, drop_ins)]
    for drop_in in drop_ins:
        problems += _drop_in_problems(drop_in)
    if problems:
        raise Refused(*problems)
    assert isinstance(main.data, dict)
    document = {key: value for key, value in main.data.items() if key != "$schema"}
    lists = [(source, _scalers(source)) for source in (main, *drop_ins)]
    if any(scalers is not None for _, scalers in lists) and _is_listable(document):
        document["scalers"] = [each for _, scalers in lists for each in scalers or ()]
    return Merged(
        main,
        document,
        tuple(source.file for source in (main, *drop_ins)),
        tuple((source, index) for source, each in lists for index in range(len(each or ()))),
        tuple(warning for drop_in in drop_ins for warning in _ignored(drop_in)),
    )


def _main_problems(main: Source, drop_ins: Sequence[Source]) -> Iterable[Problem]:
    if main.data is None:
        hint = "Write at least `version: 1` and `scalers: []`."
        if drop_ins:
            hint = "Drop-ins only add scalers: write at least `version: 1` here."
        yield Problem(main.file, "", "is empty", hint=hint)
    elif not isinstance(main.data, dict):
        hint = "Begin with `version: 1`."
        yield Problem(main.file, "", "expected a mapping", shown(main.data), hint, main.line(()))


def _drop_in_problems(drop_in: Source) -> Iterable[Problem]:
    data = drop_in.data
    if data is not None and not isinstance(data, dict):
        hint = "A drop-in holds `scalers:` and a list."
        yield Problem(drop_in.file, "", "expected a mapping", shown(data), hint, drop_in.line(()))
    elif isinstance(data, dict) and not _is_listable(data):
        value, line = shown(data["scalers"]), drop_in.line(("scalers",))
        yield Problem(drop_in.file, "scalers", "expected a list", value, line=line)


def _is_listable(data: dict[str, object]) -> bool:
    return data.get("scalers") is None or isinstance(data["scalers"], list)


def _scalers(source: Source) -> list[object] | None:
    found = source.data.get("scalers") if isinstance(source.data, dict) else None
    return found if isinstance(found, list) else None


def _ignored(drop_in: Source) -> Iterable[Problem]:
    for key in drop_in.data if isinstance(drop_in.data, dict) else ():
        if key not in _MAY_STAND_IN_A_DROP_IN:
            message = "is ignored: only `scalers` of a drop-in count"
            hint = "Move it to the main file."
            yield Problem(drop_in.file, key, message, hint=hint, line=drop_in.line((key,)))
