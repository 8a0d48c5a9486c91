"""Commands that look after a bridge may ask sudo for what they need."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workers.firecracker.commands import app

ARGUMENTS = ["verify", "--bridge", "kici-br0", "--sudo"]


class _Replaced(BaseException):
    """The process is another program by now."""


@pytest.fixture
def replaced_by(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What this process was replaced by; it is nobody special."""
    asked: list[list[str]] = []

    def replace(_program: str, words: list[str]) -> None:
        asked.append(words)
        raise _Replaced

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "execvp", replace)
    monkeypatch.setattr(sys, "argv", ["kici-scaler", "firecracker", *ARGUMENTS])
    return asked


def test_the_same_command_is_run_by_a_sudo_that_asks_nothing(replaced_by: list[list[str]]) -> None:
    with pytest.raises(_Replaced):
        CliRunner().invoke(app, ARGUMENTS, catch_exceptions=False)

    [words] = replaced_by
    assert words[:2] == ["sudo", "-n"]
    assert Path(words[2]).is_absolute()
    assert words[-len(ARGUMENTS) - 1 :] == ["firecracker", *ARGUMENTS]


def test_without_sudo_it_is_said_what_to_do(
    replaced_by: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_program: str, _words: list[str]) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "execvp", missing)

    ended = CliRunner().invoke(app, ARGUMENTS)

    assert ended.exit_code == 1
    assert "run the command as root" in ended.output
    assert replaced_by == []
