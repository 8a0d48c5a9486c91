"""The JSON Schema of scaler files, for editors and other programs."""

from __future__ import annotations

import json
from typing import Any

from kici_scaler.scalers_file.models import DropIn, ScalersFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_REQUIRED: dict[str, dict[str, Any]] = {
    "container": {"labelSet": [["image"]]},
    "bare-metal": {"labelSet": [["binaryPath"], ["image"]]},
    "firecracker": {
        "scaler": ["firecrackerPath", "jailerPath", "kernelPath", "uid", "gid"],
        "labelSet": [["rootfsPath"]],
    },
    "event": {"scaler": ["provisioningTargets"]},
}
"""By backend type: keys of the scaler, and alternatives of keys of each label set."""


def json_schema(*, drop_in: bool = False) -> dict[str, Any]:
    """The schema of a scaler file, or of a drop-in."""
    model = DropIn if drop_in else ScalersFile
    schema = model.model_json_schema(by_alias=True)
    schema["$defs"]["ScalerEntry"]["allOf"] = [
        _requirement(type_, needs) for type_, needs in _REQUIRED.items()
    ]
    if not drop_in:
        schema["properties"]["$schema"] = {"type": "string"}
    return {"$schema": DIALECT, **_any_of(schema), "title": "kici-scaler: scalers.yaml"}


def schema_text(*, drop_in: bool = False) -> str:
    """The schema as the file that is committed beside the samples."""
    return json.dumps(json_schema(drop_in=drop_in), indent=2) + "\n"


def _any_of(value: Any) -> Any:
    """`resources: {}` is both flat and nested, which "exactly one of" would refuse; the titles
    that are made from names tell an editor's user nothing."""
    if isinstance(value, dict):
        return {
            "anyOf" if key == "oneOf" else key: _any_of(each)
            for key, each in value.items()
            if key != "title"
        }
    return [_any_of(each) for each in value] if isinstance(value, list) else value


def _requirement(type_: str, needs: dict[str, Any]) -> dict[str, Any]:
    then: dict[str, Any] = {"required": needs.get("scaler", [])}
    if "labelSet" in needs:
        alternatives = [{"required": keys} for keys in needs["labelSet"]]
        then["properties"] = {"labelSets": {"items": {"anyOf": alternatives}}}
    return {"if": {"properties": {"type": {"const": type_}}}, "then": then}
