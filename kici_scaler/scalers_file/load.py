"""Reading a configuration: files, merging, every check at once, and the result.

A file is either read as a whole or refused as a whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from kici_scaler.domain.scalers import Cluster
from kici_scaler.scalers_file.cluster import effective_document, to_cluster
from kici_scaler.scalers_file.explain_errors import findings
from kici_scaler.scalers_file.merge import Merged, merge
from kici_scaler.scalers_file.models import ScalersFile
from kici_scaler.scalers_file.problems import (
    InvalidScalerFile,
    Problem,
    Refused,
    UnreadableScalerFile,
)
from kici_scaler.scalers_file.rules import mistakes
from kici_scaler.scalers_file.source import Source, read
from kici_scaler.scalers_file.texts import unstorable
from kici_scaler.scalers_file.warnings import warnings_of

MOST_DROP_INS = 256
MOST_CHARACTERS = 4 * 1024 * 1024
"""Of all files together."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A configuration that may be used.

    Attributes:
        document: the effective configuration, JSON-able, defaults filled in.
        digest: sha256 in hex of the document; the same configuration has the same digest.
        warnings: what works, but perhaps not as meant.
        files: what was read, in order.
    """

    document: Mapping[str, object]
    cluster: Cluster
    digest: str
    warnings: tuple[Problem, ...] = ()
    files: tuple[str, ...] = field(default=(), compare=False)


def load(path: Path, directory: Path | None = None) -> LoadedFile:
    """Reads the scaler file, and the drop-ins of a folder in the order of their names.

    Raises:
        InvalidScalerFile: with every mistake of every file.
        UnreadableScalerFile: one of them, or the folder, cannot be read.
    """
    return _loaded(_merged(path, directory))


def _loaded(merged: Merged) -> LoadedFile:
    file = _validated(merged)
    document = effective_document(file)
    cluster = to_cluster(file)
    found = [merged.problem(warning) for warning in warnings_of(file, cluster)]
    return LoadedFile(
        document=document,
        cluster=cluster,
        digest=digest_of(document),
        warnings=tuple(_in_order(merged, [*merged.warnings, *found])),
        files=merged.files,
    )


def load_document(document: Mapping[str, object], name: str) -> LoadedFile:
    """Checks a configuration that arrives as data, by every rule that files are checked by.

    Raises:
        InvalidScalerFile: with every mistake; `name` stands where a file's name would.
    """
    return _loaded(merge(Source(name, document, {}, 0), []))


def cluster_from_document(document: Mapping[str, object]) -> Cluster:
    """The domain's view of a document that was accepted and stored before.

    Raises:
        pydantic.ValidationError: it is no effective configuration of this version.
    """
    return to_cluster(ScalersFile.model_validate(document))


def digest_of(document: Mapping[str, object]) -> str:
    """sha256 in hex of the document's canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _merged(path: Path, directory: Path | None) -> Merged:
    sources: list[Source] = []
    problems: list[Problem] = []
    for each in (path, *drop_ins_of(directory)):
        try:
            sources.append(read(each))
        except Refused as refused:
            problems += refused.problems
        if sum(source.size for source in sources) > MOST_CHARACTERS:
            raise UnreadableScalerFile(f"{path} and its drop-ins are too large together")
    if problems:
        raise InvalidScalerFile(problems)
    try:
        return merge(sources[0], sources[1:])
    except Refused as refused:
        raise InvalidScalerFile(refused.problems) from refused


def drop_ins_of(directory: Path | None) -> list[Path]:
    """The drop-ins of a folder: `*.yaml` and `*.yml`, hidden ones left out, in name order.

    Raises:
        UnreadableScalerFile: the folder cannot be listed, or holds more than anyone keeps.
    """
    if directory is None:
        return []
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        raise UnreadableScalerFile(
            f"the folder {directory} cannot be read: {error.strerror or error}",
            hint="Check the path, or leave the folder of drop-ins out.",
        ) from error
    found = [name for name in names if name.endswith((".yaml", ".yml")) and name[0] != "."]
    if len(found) > MOST_DROP_INS:
        raise UnreadableScalerFile(f"{directory} holds more than {MOST_DROP_INS} drop-ins")
    return [directory / name for name in found]


def _validated(merged: Merged) -> ScalersFile:
    if unwritable := list(unstorable(merged.document)):
        # No other mistake can be told before these are gone.
        raise InvalidScalerFile(_in_order(merged, [merged.problem(each) for each in unwritable]))
    found = list(mistakes(merged.document, merged.place))
    try:
        file = ScalersFile.model_validate(merged.document)
    except ValidationError as error:
        found = [*findings(error.errors(include_url=False)), *found]
    else:
        if not found:
            return file
    problems = [merged.problem(finding) for finding in found]
    raise InvalidScalerFile(_in_order(merged, problems))


def _in_order(merged: Merged, problems: list[Problem]) -> list[Problem]:
    """By file, in the order they were merged, and line."""
    position = {file: position for position, file in enumerate(merged.files)}
    return sorted(problems, key=lambda problem: (position[problem.file], problem.line or 0))
