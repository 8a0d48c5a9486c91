"""Writes the reference pages and schemas from the code: `python -m scripts.reference`.

A page says what the code says at its definition; a test fails when one is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.cli import get_docs_for_click

from config.settings import Settings
from kici_scaler.cli.main import app
from kici_scaler.domain import knobs
from kici_scaler.errors import ExitCode
from kici_scaler.metrics import METRICS
from kici_scaler.scalers_file.reference import scaler_file_page
from kici_scaler.scalers_file.schema import schema_text
from scripts.spawn_states import spawn_states_page, with_spawn_diagram

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "docs" / "reference"
SAMPLES: Final = ROOT / "config" / "scalers"
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
SCHEMAS: Final = {"schema.json": False, "drop-in.schema.json": True}
"""Files beside the sample scaler files, and whether each is about drop-ins."""


def pages() -> dict[str, str]:
    """The text of each page by its file name in `docs/reference`."""
    return {
        "cli.md": command_line_page(),
        "metrics.md": metrics_page(),
        "scaler-file.md": scaler_file_page(),
        "settings.md": settings_page(),
        "live-settings.md": live_settings_page(),
        "spawn-states.md": spawn_states_page(),
    }


def command_line_page() -> str:
    """The help of every command, and what exit codes mean."""
    command = typer.main.get_command(app)
    helped = get_docs_for_click(
        obj=command, ctx=typer.Context(command, info_name=str(app.info.name))
    )
    codes = [f"| {code.value} | {_cell(meaning)} |" for code, meaning in _meanings(ExitCode)]
    table = ["## Exit codes", "", "| code | means |", "| --- | --- |", *codes]
    return "\n".join(["# The command line", *_linked(helped.splitlines()[1:]), *table]) + "\n"


def _linked(lines: Sequence[str]) -> Iterator[str]:
    """The lines with lists of commands as links to where each is described in full."""
    group = str(app.info.name)
    for line in lines:
        if heading := re.fullmatch(r"#+ `(.+)`", line):
            group = heading[1]
        listed = re.fullmatch(r"\* `(\w[\w-]*)`: .*", line)
        anchor = f"{group} {listed[1]}".replace(" ", "-") if listed else ""
        yield f"* [`{listed[1]}`](#{anchor})" if listed else line


def _meanings(codes: type[ExitCode]) -> list[tuple[ExitCode, str]]:
    """Each code with the text that stands below it in the source."""
    (defined,) = ast.parse(inspect.getsource(codes)).body
    assert isinstance(defined, ast.ClassDef)
    found = []
    for member, text in pairwise(defined.body):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr):
            found.append((codes[ast.unparse(member.targets[0])], str(ast.literal_eval(text.value))))
    return found


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


def metrics_page() -> str:
    """One row a metric: its kind, its labels, what it says, where its values come from."""
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{name}`' for name in each.labels)} "
        f"| {_cell(each.about)} | {each.carried} |"
        for each in METRICS
    ]
    head = [
        "# Metrics",
        "",
        "What every gateway tells at `/metrics`, in Prometheus' text format, to whoever shows a",
        "dispatcher's or an operator's key. All but those named `kici_gateway_` are of the whole",
        "cluster and the same at each gateway, so scrape one of them, or take the largest value.",
        "Counters survive every restart; see the last column for what they may miss.",
        "",
        "| metric | kind | labels | says | its values are |",
        "| --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *rows]) + "\n"


def live_settings_page() -> str:
    """One row a knob: how far it turns, and what it is for."""
    rows = [
        f"| `{knob.key}` | {knobs.written(knob.default)} | {knobs.written(knob.floor)} to"
        f" {knobs.written(knob.ceiling)} | {_cell(knob.about)}"
        f" | {f'`{knob.reference}`' if knob.reference else ''} |"
        for knob in knobs.KNOBS
    ]
    own = ", ".join(f"`{knob.key}`" for knob in knobs.KNOBS if knob.per_org)
    head = [
        "# Live settings",
        "",
        "Numbers in the database that every process reads at each use: what `kici-scaler settings",
        "set NAME VALUE` stores counts from then on, everywhere. Values are in the unit of the",
        "name; under the other name, where there is one, durations are in milliseconds.",
        f"An organisation may have its own {own} (`--org`).",
        "",
        "| setting | default | from … to | is | other name |",
        "| --- | --- | --- | --- | --- |",
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
    page = with_spawn_diagram(ARCHITECTURE.read_text(encoding="utf-8"))
    ARCHITECTURE.write_text(page, encoding="utf-8")
    for name, is_drop_in in SCHEMAS.items():
        (SAMPLES / name).write_text(schema_text(drop_in=is_drop_in), encoding="utf-8")


if __name__ == "__main__":
    main()
