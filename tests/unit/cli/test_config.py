"""`kici-scaler config` on good and bad files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kici_scaler.cli.config import app
from kici_scaler.scalers_file import load
from kici_scaler.scalers_file.schema import schema_text
from tests.unit.scalers_file.files import document, entry, label_set, write


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def _json(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path, document(label_set(labels=["x", "arm"])), "good.yaml")


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    return write(tmp_path, document(entry(maxAgents=0, imge="x")), "bad.yaml")


def test_a_valid_file_is_said_to_be_valid_with_its_warnings(good: Path) -> None:
    result = _run("check", good)
    assert result.exit_code == 0
    assert f"warning: {good}:7: scalers[0].labelSets[0].labels: jobs must ask for" in result.stdout
    assert f"{good}: valid; 1 scaler, 1 label set; digest " in result.stdout


def test_every_mistake_is_told_on_standard_error(bad: Path) -> None:
    result = _run("check", bad)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"{bad}:5: scalers[0].maxAgents: expected more than 0 (it is 0)." in result.stderr
    assert "scalers[0].imge: is an unknown key." in result.stderr
    assert "2 mistakes" in result.stderr


@pytest.mark.parametrize("command", ["check", "show"])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_missing_file_cannot_be_read(tmp_path: Path, command: str, as_json: list[str]) -> None:
    result = _run(command, tmp_path / "nowhere.yaml", *as_json)
    assert result.exit_code == 2
    assert "nowhere.yaml cannot be read" in result.output


def test_programs_get_the_verdict(good: Path) -> None:
    verdict = _json(_run("check", good, "--json"))
    assert verdict["valid"] is True
    assert verdict["digest"] == load(good).digest
    assert verdict["scalers"] == ["s"]
    assert [each["path"] for each in verdict["warnings"]] == ["scalers[0].labelSets[0].labels"]


def test_programs_get_every_mistake(bad: Path) -> None:
    result = _run("check", bad, "--json")
    assert result.exit_code == 1
    found = _json(result)
    assert found["valid"] is False
    assert found["problems"][0] == {
        "file": str(bad),
        "line": 5,
        "path": "scalers[0].maxAgents",
        "message": "expected more than 0",
        "value": "0",
    }


def test_drop_ins_are_read_where_told(good: Path, tmp_path: Path) -> None:
    drop_in = write(tmp_path / "d", {"scalers": [entry(name="more")]}, "10.yaml")
    result = _run("check", good, "--dir", drop_in.parent)
    assert result.exit_code == 0
    assert f"{good}, {drop_in}: valid; 2 scalers" in result.stdout
    assert _run("check", good, "--dir", tmp_path / "nowhere").exit_code == 2


def test_what_is_shown_is_a_scaler_file_of_the_same_meaning(good: Path, tmp_path: Path) -> None:
    shown = _run("show", good)
    assert shown.exit_code == 0
    assert "maxConcurrentSpawns: 8" in shown.stdout
    assert load(write(tmp_path, shown.stdout)).digest == load(good).digest
    assert _json(_run("show", good, "--json")) == load(good).document


def test_the_schema_is_printed_as_it_is_committed() -> None:
    assert _run("schema").stdout == schema_text()
    assert _run("schema", "--drop-in").stdout == schema_text(drop_in=True)


def test_a_reload_is_shown_before_it_is_done(tmp_path: Path) -> None:
    old = write(
        tmp_path,
        document(
            entry(name="stays", maxAgents=1),
            entry("event", name="goes", labelSets=[{"labels": ["y"]}]),
        ),
        "old.yaml",
    )
    new = write(
        tmp_path,
        document(
            entry(name="stays", maxAgents=2),
            entry("event", name="comes", labelSets=[{"labels": ["z"]}]),
            globalMaxAgents=9,
        ),
        "new.yaml",
    )
    result = _run("diff", old, new)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "globalMaxAgents: 50 -> 9",
        "~ stays: changed",
        "    maxAgents: 1 -> 2",
        "+ comes: added",
        "- goes: removed",
    ]
    plan = _json(_run("diff", old, new, "--json"))
    assert (plan["added"], plan["removed"], plan["changed"]) == (["comes"], ["goes"], ["stays"])
    assert plan["changes"]["stays"] == [{"field": "maxAgents", "old": 1, "new": 2}]
    assert _run("diff", old, old).stdout == "nothing changes\n"


def test_a_reload_that_would_be_rejected_is_told(tmp_path: Path) -> None:
    old = write(tmp_path, document(entry()), "old.yaml")
    new = write(tmp_path, document(entry("bare-metal")), "new.yaml")
    result = _run("diff", old, new)
    assert result.exit_code == 1
    assert "! s: type-changed" in result.stdout
    assert "rejected: scaler 's'" in result.stdout
    assert _json(_run("diff", old, new, "--json"))["accepted"] is False


def test_a_bad_side_of_a_comparison_is_told(good: Path, bad: Path) -> None:
    assert _run("diff", good, bad).exit_code == 1
    assert _run("diff", bad.parent / "nowhere", good).exit_code == 2
