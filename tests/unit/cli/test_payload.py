"""A payload comes from a command or a file, and a wrong one is told apart in one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kici_scaler.cli.payload import read_payload
from kici_scaler.client import Payload
from kici_scaler.errors import InvalidInput, KiciError, Unavailable


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job.json"


def test_a_command_is_taken_as_it_is() -> None:
    assert read_payload(["sh", "-c", "exit 3"], None, []) == Payload(("sh", "-c", "exit 3"))


def test_a_file_says_everything(file: Path) -> None:
    file.write_text(json.dumps(
        {"command": ["cat"], "env": {"A": "1", "B": "1"}, "stdin": "x", "timeoutSeconds": 5}
    ))  # fmt: skip
    assert read_payload([], file, ["B=2"]) == Payload(("cat",), {"A": "1", "B": "2"}, "x", 5)


def test_a_variable_may_be_taken_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret=value")
    found = read_payload(["true"], None, ["TOKEN", "EMPTY=", "EQUAL=a=b"])
    assert found.env == {"TOKEN": "secret=value", "EMPTY": "", "EQUAL": "a=b"}
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("command: [make]", "is not JSON"),
        ("[]", "not an object"),
        ('{"command": []}', "command: "),
        ('{"command": "make test"}', "command: "),
        ('{"command": ["make"], "timeout": 5}', "timeout: "),
        ('{"command": ["make"], "timeoutSeconds": 0}', "timeoutSeconds: "),
    ],
)
def test_what_is_no_payload_is_told(file: Path, content: str, message: str) -> None:
    file.write_text(content)
    with pytest.raises(InvalidInput, match=message):
        read_payload([], file, [])


def test_a_file_that_is_not_there_is_told(file: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        read_payload([], file, [])


@pytest.mark.parametrize("command", [["true"], []])
def test_either_a_command_or_a_file(command: list[str], file: Path) -> None:
    with pytest.raises(InvalidInput, match="either a command or a payload file"):
        read_payload(command, file if command else None, [])


@pytest.mark.parametrize("variable", ["=x", "NOT_SET_ANYWHERE"])
def test_a_variable_that_there_is_not_is_told(variable: str) -> None:
    with pytest.raises(KiciError, match="no such variable"):
        read_payload(["true"], None, [variable])
