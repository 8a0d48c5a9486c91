"""What a job sealed for the worker: opened only there, and never told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kici_scaler.sealing import ensure_keys, generate_key, seal
from workers.credentials import RegistryCredentials
from workers.errors import Permanent
from workers.host.unsealing import Unsealer


def _sealed(path: Path, plain: bytes) -> dict[str, str]:
    return seal(ensure_keys(path).newest.public, plain).as_json()


def test_credentials_arrive_as_the_dispatcher_sealed_them(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    plain = {"username": "ci", "password": "hidden", "server": "registry.example"}
    sealed = _sealed(keys, json.dumps(plain).encode())
    opened = Unsealer(keys).registry(sealed)
    assert opened == RegistryCredentials("hidden", "ci", "registry.example")
    assert "hidden" not in repr(opened)


def test_a_job_without_credentials_needs_no_keys() -> None:
    assert Unsealer(None).registry(None) is None


@pytest.mark.parametrize("plain", [b"hidden", b'["hidden"]', b'{"username": "hidden"}'])
def test_what_is_not_credentials_is_the_jobs_own_fault_and_is_not_quoted(
    tmp_path: Path, plain: bytes
) -> None:
    keys = tmp_path / "keys.json"
    with pytest.raises(Permanent) as refused:
        Unsealer(keys).registry(_sealed(keys, plain))
    assert refused.value.job_caused
    assert "hidden" not in str(refused.value)


def test_an_envelope_for_other_keys_is_the_jobs_own_fault(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    ensure_keys(keys)
    with pytest.raises(Permanent) as refused:
        Unsealer(keys).registry(seal(generate_key().public, b"{}").as_json())
    assert refused.value.job_caused


def test_a_worker_without_keys_blames_itself_not_the_job(tmp_path: Path) -> None:
    sealed = _sealed(tmp_path / "keys.json", b"{}")
    for unsealer in (Unsealer(None), Unsealer(tmp_path / "missing.json")):
        with pytest.raises(Permanent) as refused:
            unsealer.registry(sealed)
        assert not refused.value.job_caused
