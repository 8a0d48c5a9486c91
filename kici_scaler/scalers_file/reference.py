"""The reference page of the scaler file, written from the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kici_scaler.domain.quantities import MEMORY_PATTERN
from kici_scaler.domain.scalers import BackendType
from kici_scaler.scalers_file.applies import LABEL_SET_KEYS, SCALER_KEYS
from kici_scaler.scalers_file.schema import json_schema

_SECTIONS = (
    ("The file", "ScalersFile", ""),
    ("Scaler", "ScalerEntry", "scalers[]"),
    ("Label set", "LabelSetEntry", "scalers[].labelSets[]"),
    ("Resources", "ResourcesEntry", "resources"),
    ("Amounts", "AmountEntry", "resources, resources.requests, resources.limits"),
    ("Caps", "CapEntry", "resourceCap, globalResourceCap, machinePools[].cap"),
    ("Warm pool", "WarmPoolEntry", "scalers[].warmPool"),
    ("Schedule of a warm pool", "WarmScheduleEntry", "scalers[].warmPool.schedules[]"),
    ("Platform", "PlatformEntry", "scalers[].platform"),
    ("Network policy", "NetworkPolicyEntry", "scalers[].labelSets[].networkPolicy"),
    ("Machine", "MachineEntry", "scalers[].machines[]"),
    ("Jump host", "SshEntry", "scalers[].machines[].jumpHost"),
    ("TLS of a remote runtime", "TlsEntry", "scalers[].tls"),
    ("Machine pool", "MachinePoolEntry", "machinePools[]"),
    ("Defaults", "DefaultsEntry", "defaults"),
    ("Firecracker network", "FirecrackerEntry", "firecracker"),
)
_APPLIES = {"ScalerEntry": SCALER_KEYS, "LabelSetEntry": LABEL_SET_KEYS}
_BOUNDS = (("exclusiveMinimum", "above"), ("minimum", "at least"), ("maximum", "at most"))
_WIDEST_BOUND = 2**31 - 1
"""Bounds that only keep numbers within a column are not worth telling."""


def scaler_file_page() -> str:
    """Markdown: a table for each object of the file, a row for each key."""
    schema = json_schema()
    models = {**schema["$defs"], "ScalersFile": schema}
    lines = [
        "# Scaler file",
        "",
        "Every key of `scalers.yaml`. How the parts work together is told in",
        "[configuration](../configuration.md). Keys are written in camelCase; an unknown key",
        "is an error. Keys that belong to another backend type are ignored with a warning.",
    ]
    for title, model, place in _SECTIONS:
        lines += ["", f"## {title}", "", *_intro(models[model], place)]
        lines += _table(models[model], _APPLIES.get(model, {}))
    return "\n".join(lines) + "\n"


def _intro(model: Mapping[str, Any], place: str) -> Iterator[str]:
    where = ", ".join(f"`{each}`" for each in place.split(", ")) if place else ""
    text = _line(model["description"])
    yield f"{where}. {text}" if where else text
    yield ""


def _table(
    model: Mapping[str, Any], applies: Mapping[str, frozenset[BackendType]]
) -> Iterator[str]:
    column = " for |" if applies else ""
    yield f"| key | takes | default |{column} is |"
    yield f"| --- | --- | --- |{' --- |' if applies else ''} --- |"
    for key, field in model["properties"].items():
        if key == "$schema":
            continue
        default = "required" if key in model.get("required", ()) else _default(field)
        cells = [f"`{key}`", _kind(field).replace("|", "\\|"), default]
        if applies:
            cells.append(", ".join(sorted(applies[key])) if key in applies else "all")
        yield f"| {' | '.join([*cells, _line(field['description'])])} |"


def _default(field: Mapping[str, Any]) -> str:
    default = field.get("default")
    if default in (None, [], {}):
        return ""
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _kind(field: Mapping[str, Any]) -> str:
    """What may be written, in a few words."""
    alternatives = field.get("anyOf", ())
    if alternatives:
        kinds = (_kind(each) for each in alternatives if each.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in field:
        return _linked(field["$ref"].rpartition("/")[2])
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("pattern") == MEMORY_PATTERN:
        return "amount of memory"
    if field["type"] == "array":
        return f"list of {_kind(field['items'])}"
    if field["type"] == "object":
        return "mapping of texts"
    return _plain(field)


def _plain(field: Mapping[str, Any]) -> str:
    names = {"integer": "whole number", "number": "number", "string": "text"}
    names["boolean"] = "`true`, `false`"
    listed = field["type"] if isinstance(field["type"], list) else [field["type"]]
    kind = " or ".join(names[each] for each in listed)
    bounds = [
        f"{word} {field[bound]}"
        for bound, word in _BOUNDS
        if bound in field and field[bound] < _WIDEST_BOUND
    ]
    return f"{kind} {' and '.join(bounds)}".strip()


def _linked(model: str) -> str:
    title = next(title for title, name, _ in _SECTIONS if name == model)
    shown = title if title[:2].isupper() else f"{title[0].lower()}{title[1:]}"
    return f"[{shown}](#{title.lower().replace(' ', '-')})"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
