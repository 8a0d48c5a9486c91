"""`machines add` and `check` on a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kici_scaler.errors import InvalidInput, NotFound
from tests.support.fleets import scaler
from tests.support.sshd import Sshd
from workers.bare_metal.machine_commands import add_app, check_app

runner = CliRunner()


def write(folder: Path, *scalers: Any) -> str:
    path = folder / "scalers.yaml"
    path.write_text(json.dumps({"version": 1, "scalers": list(scalers)}))
    return str(path)


def look(*arguments: str) -> tuple[int, dict[str, Any]]:
    ended = runner.invoke(check_app, [*arguments, "--json"])
    return ended.exit_code, {each["name"]: each for each in json.loads(ended.stdout)["machines"]}


def test_what_add_prints_is_what_check_finds_ready(sshd: Sshd, tmp_path: Path) -> None:
    given = ["--port", str(sshd.port), "--name", "one", "--user", sshd.user]
    given += ["--key-file", str(sshd.key_file)]
    printed = runner.invoke(add_app, [sshd.address, *given, "--json"])
    answer = json.loads(printed.stdout)
    assert answer["machine"]["hostKey"] == sshd.host_key

    entry = {**answer["machine"], "stateDir": str(sshd.state)}
    code, found = look("--config", write(tmp_path, scaler("fleet", "builtin:agent", [entry])))

    assert (code, found["one"]["ok"]) == (0, True)
    subjects = {each["subject"] for each in found["one"]["findings"]}
    assert {"connection", "clock", "supervisor", "fleet, label set 0"} <= subjects


def test_another_key_than_the_expected_one_prints_no_entry(sshd: Sshd) -> None:
    ended = runner.invoke(
        add_app, [sshd.address, "--port", str(sshd.port), "--fingerprint", "SHA256:other"]
    )

    assert isinstance(ended.exception, InvalidInput)
    assert "shows another key: SHA256:" in str(ended.exception)
    assert "hostKey" not in ended.stdout


def test_check_says_what_to_fix_and_fails(sshd: Sshd, tmp_path: Path) -> None:
    good, gone = {**sshd.entry(), "name": "good"}, {**sshd.entry(), "name": "gone", "port": 1}
    path = write(tmp_path, scaler("fleet", "/nowhere/agent", [good, gone]))

    code, found = look("--config", path)
    ended = runner.invoke(check_app, ["good", "--config", path])

    assert code == 1
    assert not found["gone"]["ok"]
    assert "no connection to" in found["gone"]["findings"][0]["message"]
    assert ended.exit_code == 1
    assert "error   fleet, label set 0: /nowhere/agent does not exist" in ended.stdout
    assert "to fix: install it, or correct `binaryPath`" in ended.stdout


@pytest.mark.parametrize("names", [[], ["other"]])
def test_a_machine_that_nobody_lists_is_an_error(tmp_path: Path, names: list[str]) -> None:
    here = {"name": "here", "type": "bare-metal", "maxAgents": 1,
            "labelSets": [{"labels": ["a"], "binaryPath": "/bin/true"}]}  # fmt: skip

    ended = runner.invoke(check_app, [*names, "--config", write(tmp_path, here)])

    assert isinstance(ended.exception, NotFound)
