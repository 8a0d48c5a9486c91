"""A command finds its gateway, and sends no key where it does not belong."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from kici_scaler.cli import access
from kici_scaler.cli.access import find_access
from kici_scaler.embedded.profile import LocalProfile
from kici_scaler.errors import InvalidInput, Unavailable


@pytest.fixture(autouse=True)
def no_gateway_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KICI_URL", "KICI_API_KEY", "KICI_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(access, "local_instance", lambda: None)


def instance(folder: Path, gateway_url: str | None) -> LocalProfile:
    key = folder / "key"
    key.write_text("key-of-the-instance\n")
    return LocalProfile(
        data_dir=folder, pid=1, started=0.0, host="127.0.0.1", gateway_port=4000,
        gateway_url=gateway_url, flower_url=None, api_key_path=key, dispatcher_key_path=key,
        flower_password_path=key, seal_keys_path=key, database_url=SecretStr("postgresql://"),
        redis_url=SecretStr("redis://"), installation_id="local-1",
    )  # fmt: skip


def test_the_environment_names_gateway_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KICI_URL", "https://scaler.example.com/")
    monkeypatch.setenv("KICI_API_KEY", "mine")
    found = find_access()
    assert (found.url, found.api_key) == ("https://scaler.example.com", "mine")
    assert "mine" not in repr(found)


def test_else_the_instance_that_runs_here_is_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = instance(tmp_path, "http://127.0.0.1:4000")
    monkeypatch.setattr(access, "local_instance", lambda: here)
    found = find_access()
    assert (found.url, found.api_key) == ("http://127.0.0.1:4000", "key-of-the-instance")


def test_a_key_of_the_instance_is_not_sent_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = instance(tmp_path, "http://127.0.0.1:4000")
    monkeypatch.setattr(access, "local_instance", lambda: here)
    monkeypatch.setenv("KICI_URL", "https://elsewhere.example.com")
    with pytest.raises(InvalidInput, match="KICI_API_KEY is not"):
        find_access()


def test_an_instance_without_a_gateway_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(access, "local_instance", lambda: instance(tmp_path, None))
    with pytest.raises(Unavailable, match="runs no gateway"):
        find_access()


def test_nothing_named_and_nothing_running_is_said() -> None:
    with pytest.raises(Unavailable, match="no gateway is known"):
        find_access()


def test_what_is_no_url_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KICI_URL", "scaler.example.com")
    monkeypatch.setenv("KICI_API_KEY", "mine")
    with pytest.raises(InvalidInput, match="not the URL of a gateway"):
        find_access()
