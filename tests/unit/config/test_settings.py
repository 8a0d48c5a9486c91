"""What the environment tells a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from config.settings import Settings


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("KICI_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql://u:p@h:5/d", "postgresql+psycopg2://u:p@h:5/d"),
        ("postgres://u:p@h:5/d", "postgresql+psycopg2://u:p@h:5/d"),
        ("postgresql+psycopg2://u:p@h:5/d", "postgresql+psycopg2://u:p@h:5/d"),
        ("", ""),
    ],
)
def test_a_database_url_names_its_driver(
    monkeypatch: pytest.MonkeyPatch, given: str, used: str
) -> None:
    monkeypatch.setenv("KICI_DATABASE_URL", given)
    assert Settings().database_url.get_secret_value() == used


def test_secrets_do_not_show_when_settings_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KICI_DATABASE_URL", "postgresql://u:hidden@h/d")
    monkeypatch.setenv("KICI_REDIS_URL", "redis://:hidden@h/0")
    assert "hidden" not in repr(Settings())
    assert "hidden" not in str(Settings().model_dump())


def test_the_mutex_lives_on_the_broker_unless_it_has_a_server_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KICI_REDIS_URL", "redis://broker/0")
    assert Settings().mutex_url == "redis://broker/0"
    monkeypatch.setenv("KICI_LOCK_REDIS_URL", "redis://locks/0")
    assert Settings().mutex_url == "redis://locks/0"


def test_agents_are_told_the_gateway_of_this_host_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KICI_PORT", "4321")
    assert Settings().agent_url == "ws://127.0.0.1:4321/v1/agents"
    monkeypatch.setenv("KICI_ORCHESTRATOR_URL", "wss://gateway.test/v1/agents")
    assert Settings().agent_url == "wss://gateway.test/v1/agents"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KICI_PORT", "0"),
        ("KICI_PORT", "65536"),
        ("KICI_PORT", "http"),
        ("KICI_INSTALLATION_ID", "Has Blanks"),
        ("KICI_INSTALLATION_ID", "x" * 41),
        ("KICI_MACHINE_ID", "-dash"),
        ("KICI_MACHINE_ID", "a/b"),
        ("KICI_LOG_FORMAT", "xml"),
        ("KICI_RESERVATION_MUTEX", "perhaps"),
    ],
)
def test_a_value_that_cannot_work_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert name.removeprefix("KICI_").lower() in str(caught.value)


@pytest.mark.parametrize(("text", "is_on"), [("true", True), ("false", False), ("0", False)])
def test_the_mutex_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, text: str, is_on: bool
) -> None:
    monkeypatch.setenv("KICI_RESERVATION_MUTEX", text)
    assert Settings().reservation_mutex is is_on


def test_a_machine_is_known_by_its_short_name_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Host-7.example.test")
    monkeypatch.setenv("KICI_STATE_DIR", str(tmp_path))
    assert Settings().machine_id == "host-7"
    assert Settings().state_dir == tmp_path


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]  # that it is frozen is the point
