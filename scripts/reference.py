"""Writes the reference pages and schemas from the code: `python -m scripts.reference`.

A page says what the code says at its definition; a test fails when one is out of date.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from config.settings import Settings
from kici_scaler.scalers_file.reference import scaler_file_page
from kici_scaler.scalers_file.schema import schema_text

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "docs" / "reference"
SAMPLES: Final = ROOT / "config" / "scalers"
SCHEMAS: Final = {"schema.json": False, "drop-in.schema.json": True}
"""Files beside the sample scaler files, and whether each is about drop-ins."""


def pages() -> dict[str, str]:
    """The text of each page by its file name in `docs/reference`."""
    return {"scaler-file.md": scaler_file_page(), "settings.md": settings_page()}


def settings_page() -> str:
    """One row an environment variable: what it takes, its default, what it is for."""
    prefix = str(Settings.model_config["env_prefix"])
    rows = [
        f"| `{prefix}{name.upper()}` | {_kind(field.annotation)} | {_default(field)} "
        f"| {_cell(field.description or '')} |"
        for name, field in Settings.model_fields.items()
    ]
    head = [
        "# Settings",
        "",
        "Environment variables that every process reads once at its start. What may change on a",
        "running cluster is a live setting in the database instead.",
        "",
        "| variable | takes | default | is |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _kind(annotation: object) -> str:
    """What a person may write for a value of this type."""
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [_kind(each) for each in get_args(annotation) if each is not types.NoneType]
        return " or ".join(kinds)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{each}`" for each in get_args(annotation))
    named = {"Path": "path", "SecretStr": "secret text", "bool": "`true`, `false`", "int": "number"}
    return named.get(getattr(annotation, "__name__", ""), "text")


def _default(field: FieldInfo) -> str:
    """The default as one would write it; nothing when there is none or it is worked out."""
    if field.default_factory is not None or field.default is None or not str(field.default):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write every page, over what stood there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for name, is_drop_in in SCHEMAS.items():
        (SAMPLES / name).write_text(schema_text(drop_in=is_drop_in), encoding="utf-8")


if __name__ == "__main__":
    main()
