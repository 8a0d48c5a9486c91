"""Shells complete commands, their options and what they are done to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kici_scaler.cli.main import app

INSTALLED = {
    "bash": ".bash_completions/kici-scaler.sh",
    "zsh": ".zfunc/_kici-scaler",
    "fish": ".config/fish/completions/kici-scaler.fish",
}
BASH = """
eval "$(kici-scaler --show-completion)"
COMP_WORDS=(kici-scaler req) COMP_CWORD=1
_kici_scaler_completion kici-scaler
echo "${COMPREPLY[@]}"
"""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(monkeypatch, capsys)


class Said:
    """What the command prints in an environment."""

    def __init__(self, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._capsys = capsys

    def __call__(self, *arguments: str, **environment: str) -> str:
        for name, value in environment.items():
            self._patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            app(arguments, prog_name="kici-scaler")
        assert not ended.value.code
        return self._capsys.readouterr().out


def test_bash_completes_a_command_by_the_script_that_it_is_shown() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", BASH], env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["request", "requests"], done.stderr


@pytest.mark.parametrize(("shell", "place"), INSTALLED.items())
def test_the_script_is_installed_where_the_shell_looks(
    said: Said, shell: str, place: str, tmp_path: Path
) -> None:
    # A shell is told by who started the command; here it is named.
    told = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    said("--install-completion", shell, **told)
    script = (tmp_path / place).read_text()
    assert f"_KICI_SCALER_COMPLETE=complete_{shell}" in script
    assert said("--show-completion", shell, **told).strip() == script.strip()


def test_zsh_gets_the_commands_of_a_noun(said: Said) -> None:
    answer = said(
        _KICI_SCALER_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="kici-scaler machines "
    )
    for word in ("list", "drain", "resume", "forget", "add"):
        assert f'"{word}"' in answer


def test_fish_gets_what_a_command_is_done_to(said: Said) -> None:
    answer = said(
        _KICI_SCALER_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS="kici-scaler worker ",
    )  # fmt: skip
    assert {"control", "container", "bare-metal", "firecracker", "event"} <= set(answer.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("kici-scaler doctor --", {"--json"}),
        # A command that an installed package brings.
        ("kici-scaler firecracker ", {"provision", "verify", "teardown"}),
    ],
)
def test_options_and_commands_of_others_are_offered(
    said: Said, words: str, offered: set[str]
) -> None:
    answer = said(_KICI_SCALER_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD="2")
    assert offered <= set(answer.split())
