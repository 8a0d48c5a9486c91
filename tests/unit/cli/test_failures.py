"""A command that fails says what, says what next, and ends with the right code."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kici_scaler.cli import failures
from kici_scaler.cli.failures import read_settings, reported
from kici_scaler.cli.main import app
from kici_scaler.errors import InvalidInput, Unavailable

run = CliRunner().invoke


def test_an_error_becomes_a_message_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        raise Unavailable("the database [db:5432] does not answer", hint="Start it.")
    assert ended.value.code == 2
    seen = capsys.readouterr()
    assert seen.err == "error: the database [db:5432] does not answer\nhint: Start it.\n"
    assert seen.out == ""


def test_an_error_without_a_hint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        raise InvalidInput("no")
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: no\n"


def test_debug_shows_where_an_error_came_from() -> None:
    token = failures.DEBUG.set(True)
    try:
        with pytest.raises(InvalidInput), reported():
            raise InvalidInput("no")
    finally:
        failures.DEBUG.reset(token)


def test_a_variable_with_an_impossible_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KICI_PORT", "99999")
    with pytest.raises(InvalidInput, match=r"^KICI_PORT is wrong: "):
        read_settings()


def test_the_version_is_told() -> None:
    result = run(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("kici-scaler ")


@pytest.mark.parametrize(
    ("only", "message"), [("control,nix", "--only names nix"), (" , ", "--only names nothing")]
)
def test_unknown_roles_are_refused(only: str, message: str) -> None:
    result = run(app, ["up", "--only", only])
    assert isinstance(result.exception, InvalidInput)
    assert str(result.exception) == message


@pytest.fixture
def nothing_runs(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("KICI_DATABASE_URL", "KICI_REDIS_URL", "KICI_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["worker", "control"], "KICI_DATABASE_URL and KICI_REDIS_URL"),
        (["gateway"], "KICI_DATABASE_URL and KICI_REDIS_URL"),
        (["beat"], "KICI_DATABASE_URL and KICI_REDIS_URL"),
        (["flower"], "KICI_DATABASE_URL and KICI_REDIS_URL"),
        (["migrate"], "KICI_DATABASE_URL"),
    ],
)
def test_a_role_without_servers_says_which_variable(arguments: list[str], missing: str) -> None:
    result = run(app, arguments)
    assert isinstance(result.exception, InvalidInput)
    assert str(result.exception).startswith(f"{missing} not set")


def test_a_kind_of_worker_that_does_not_exist_is_refused() -> None:
    result = run(app, ["worker", "cloud"])
    assert isinstance(result.exception, InvalidInput)
    assert "bare-metal" in result.exception.hint


def test_flower_is_not_opened_to_everybody(
    nothing_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KICI_DATABASE_URL", "postgresql+psycopg2://x@h/d")
    monkeypatch.setenv("KICI_REDIS_URL", "redis://h/0")
    monkeypatch.delenv("FLOWER_BASIC_AUTH", raising=False)
    result = run(app, ["flower"])
    assert isinstance(result.exception, InvalidInput)
    assert "open to everybody" in str(result.exception)
