"""The samples and the schemas beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kici_scaler.scalers_file import load
from kici_scaler.scalers_file.applies import LABEL_SET_KEYS, SCALER_KEYS
from kici_scaler.scalers_file.entries import LabelSetEntry
from kici_scaler.scalers_file.models import ScalerEntry
from kici_scaler.scalers_file.reference import scaler_file_page
from kici_scaler.scalers_file.schema import json_schema, schema_text
from kici_scaler.scalers_file.source import read
from kici_scaler.scalers_file.suggest import aliases
from tests.unit.scalers_file.files import write

SAMPLES = Path(__file__).parents[3] / "config" / "scalers"
MAIN = sorted(SAMPLES.glob("*.yaml"))
DROP_INS = SAMPLES / "scalers.d"
EDITOR_LINE = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")


@pytest.mark.parametrize("sample", MAIN, ids=lambda path: path.name)
def test_a_sample_is_valid(sample: Path) -> None:
    file = load(sample)
    assert file.cluster.scalers
    assert {warning.path.rpartition(".")[2] for warning in file.warnings} <= {"containerSocket"}


def test_the_drop_in_sample_adds_to_the_event_sample() -> None:
    cluster = load(SAMPLES / "event.yaml", DROP_INS).cluster
    assert [scaler.name for scaler in cluster.scalers] == ["cloud", "gpu"]


@pytest.mark.parametrize(
    "sample", [*MAIN, *sorted(DROP_INS.glob("*.yaml"))], ids=lambda path: path.name
)
def test_an_editor_finds_the_schema_of_a_sample(sample: Path) -> None:
    line = EDITOR_LINE.match(sample.read_text(encoding="utf-8"))
    assert line
    schema = json.loads((sample.parent / line[1]).read_text(encoding="utf-8"))
    data = read(sample).data
    assert isinstance(data, dict)
    assert data.keys() <= schema["properties"].keys()
    assert ("version" in schema["properties"]) is (sample.parent != DROP_INS)


@pytest.mark.parametrize(("name", "drop_in"), [("schema", False), ("drop-in.schema", True)])
def test_the_committed_schemas_are_current(name: str, drop_in: bool) -> None:
    committed = (SAMPLES / f"{name}.json").read_text(encoding="utf-8")
    assert committed == schema_text(drop_in=drop_in), "run `make docs`"


def test_every_object_of_the_schema_is_strict_and_described() -> None:
    schema = json_schema()
    for name, definition in {**schema["$defs"], "file": schema}.items():
        assert definition["additionalProperties"] is False, name
        assert definition["description"], name
        for key, field in definition["properties"].items():
            assert key == "$schema" or field["description"], f"{name}.{key}"


def test_the_schema_asks_for_what_each_type_needs() -> None:
    conditions: list[dict[str, Any]] = json_schema()["$defs"]["ScalerEntry"]["allOf"]
    needs = {each["if"]["properties"]["type"]["const"]: each["then"] for each in conditions}
    assert needs["firecracker"]["required"][:2] == ["firecrackerPath", "jailerPath"]
    assert needs["event"]["required"] == ["provisioningTargets"]
    image = needs["container"]["properties"]["labelSets"]["items"]["anyOf"]
    assert image == [{"required": ["image"]}]


def test_keys_of_some_types_are_keys_of_the_schema() -> None:
    assert SCALER_KEYS.keys() <= set(aliases(ScalerEntry))
    assert LABEL_SET_KEYS.keys() <= set(aliases(LabelSetEntry))


def test_the_reference_page_holds_every_key_and_its_default() -> None:
    page = scaler_file_page()
    for definition in [json_schema(), *json_schema()["$defs"].values()]:
        for key in definition["properties"].keys() - {"$schema"}:
            assert f"| `{key}` |" in page
    assert "| `maxConcurrentSpawns` | whole number above 0 | `8` | all |" in page


def test_a_file_may_name_its_schema(tmp_path: Path) -> None:
    written = {"$schema": "./schema.json", "version": 1, "scalers": []}
    assert load(write(tmp_path, written)).cluster.scalers == ()
