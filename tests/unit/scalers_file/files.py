"""Scaler files for tests: written from text, or from a minimal document with changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kici_scaler.scalers_file import InvalidScalerFile, LoadedFile, Problem, load
from kici_scaler.scalers_file.yaml_text import to_yaml

MINIMAL: dict[str, dict[str, Any]] = {
    "container": {"labelSets": [{"labels": ["x"], "image": "i"}]},
    "bare-metal": {"labelSets": [{"labels": ["x"], "binaryPath": "b"}]},
    "firecracker": {
        "firecrackerPath": "/f",
        "jailerPath": "/j",
        "kernelPath": "/k",
        "uid": 0,
        "gid": 0,
        "labelSets": [{"labels": ["x"], "rootfsPath": "/r"}],
    },
    "event": {"provisioningTargets": ["acme/infra"], "labelSets": [{"labels": ["x"]}]},
}
"""What each type needs besides name, type and maxAgents."""


def entry(type: str = "container", /, **changes: Any) -> dict[str, Any]:
    """A scaler of that type; a change to None takes the key away."""
    merged = {"name": "s", "type": type, "maxAgents": 2, **MINIMAL[type], **changes}
    return {key: value for key, value in merged.items() if value is not None}


def label_set(type: str = "container", /, **changes: Any) -> dict[str, Any]:
    """A scaler of that type whose one label set is changed; None takes the key away."""
    merged = {**MINIMAL[type]["labelSets"][0], **changes}
    return entry(type, labelSets=[{k: v for k, v in merged.items() if v is not None}])


def document(*scalers: Any, **top: Any) -> dict[str, Any]:
    """A whole file."""
    merged = {"version": 1, "scalers": list(scalers), **top}
    return {key: value for key, value in merged.items() if value is not None}


def write(folder: Path, content: object, name: str = "scalers.yaml") -> Path:
    """A file of that text, or of that data as YAML."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else to_yaml(content)
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, *scalers: Any, **top: Any) -> LoadedFile:
    """The file of these scalers, which is valid."""
    return load(write(folder, document(*scalers, **top)))


def problems(folder: Path, content: object, directory: Path | None = None) -> list[Problem]:
    """Every mistake of a file, which is invalid."""
    try:
        load(write(folder, content), directory)
    except InvalidScalerFile as error:
        return list(error.problems)
    raise AssertionError("the file is valid")


def mistakes(folder: Path, *scalers: Any, **top: Any) -> dict[str, str]:
    """Message and hint by path, of the file of these scalers; empty when it is valid."""
    try:
        load(write(folder, document(*scalers, **top)))
    except InvalidScalerFile as error:
        return {each.path: f"{each.message} {each.hint}".strip() for each in error.problems}
    return {}


def warned(folder: Path, *scalers: Any, **top: Any) -> dict[str, str]:
    """Message by path of every warning of a valid file."""
    return {each.path: each.message for each in loaded(folder, *scalers, **top).warnings}
