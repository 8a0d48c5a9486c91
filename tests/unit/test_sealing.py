"""Only the cluster opens what was sealed to it."""

from __future__ import annotations

import json
import multiprocessing
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kici_scaler.sealing import (
    DamagedEnvelope,
    Envelope,
    PublicKey,
    SealingError,
    SealingKeys,
    UnknownKey,
    UnreadableKeys,
    add_key,
    ensure_keys,
    generate_key,
    load_keys,
    open_envelope,
    seal,
)

KEYS = SealingKeys((generate_key(), generate_key()))


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_what_was_sealed_opens(plaintext: bytes) -> None:
    for key in KEYS.keys:
        envelope = seal(key.public, plaintext)
        assert open_envelope(KEYS, envelope) == plaintext
        assert open_envelope(KEYS, Envelope.from_json(envelope.as_json())) == plaintext


def test_the_same_sealed_twice_looks_different() -> None:
    public = KEYS.newest.public
    assert seal(public, b"x").sealed != seal(public, b"x").sealed


def test_a_key_that_is_gone_opens_nothing_and_says_what_to_do() -> None:
    envelope = seal(generate_key().public, b"x")
    with pytest.raises(UnknownKey) as caught:
        open_envelope(KEYS, envelope)
    assert "/v1/sealing-key" in caught.value.hint


@pytest.mark.parametrize("change", ["cut", "swap", "text", "empty", "other key"])
def test_a_changed_envelope_does_not_open(change: str) -> None:
    envelope = seal(KEYS.newest.public, b"some plaintext")
    sealed = {
        "cut": envelope.sealed[:-8],
        "swap": envelope.sealed[:60] + ("A" if envelope.sealed[60] != "A" else "B")
        + envelope.sealed[61:],
        "text": "not base64!",
        "empty": "",
        "other key": seal(KEYS.keys[0].public, b"x").sealed,
    }[change]  # fmt: skip
    with pytest.raises(DamagedEnvelope):
        open_envelope(KEYS, Envelope(envelope.key_id, sealed))


@pytest.mark.parametrize("value", [{}, {"keyId": "k"}, {"keyId": "k", "sealed": 5}])
def test_an_envelope_has_both_fields(value: dict[str, object]) -> None:
    with pytest.raises(DamagedEnvelope):
        Envelope.from_json(value)


@pytest.mark.parametrize(
    "value",
    [{}, {"keyId": "k", "publicKey": "AAAA"}, {"keyId": "k", "publicKey": "%"}, {"keyId": 1}],
)
def test_a_public_key_is_32_bytes(value: dict[str, object]) -> None:
    with pytest.raises(SealingError):
        PublicKey.from_json(value)


def test_a_public_key_survives_the_wire_and_sealing_to_none_fails() -> None:
    public = KEYS.newest.public
    assert PublicKey.from_json(public.as_json()) == public
    with pytest.raises(SealingError):
        seal(PublicKey("k", "AAAA"), b"x")
    with pytest.raises(SealingError):
        seal(PublicKey("k", "A" * 43 + "="), b"x")


def test_a_private_key_is_not_shown() -> None:
    key = generate_key()
    assert repr(key.private_key) not in repr(SealingKeys((key,)))
    assert "private" not in repr(key)


def test_a_file_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "keys.json"
    keys = ensure_keys(path)
    assert ensure_keys(path) == load_keys(path) == keys
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["keys.json"]


def _ensure(path: str) -> str:
    return ensure_keys(Path(path)).newest.key_id


def test_processes_that_make_it_at_once_all_get_the_same(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(8) as pool:
        assert len(set(pool.map(_ensure, [str(tmp_path / "keys.json")] * 32, chunksize=1))) == 1


def test_a_new_key_seals_and_the_old_one_still_opens(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    before = ensure_keys(path)
    old = seal(before.newest.public, b"old")
    after = add_key(path)

    assert load_keys(path) == after
    assert after.newest.key_id != before.newest.key_id
    assert open_envelope(after, old) == b"old"
    with pytest.raises(UnknownKey):
        open_envelope(before, seal(after.newest.public, b"new"))


def test_a_file_that_others_may_read_is_refused_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ensure_keys(path)
    path.chmod(0o640)
    with pytest.raises(UnreadableKeys, match="0640") as caught:
        load_keys(path)
    assert caught.value.hint == f"chmod 600 {path}"


def test_no_file_is_told_with_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UnreadableKeys) as caught:
        load_keys(tmp_path / "keys.json")
    assert "kici-scaler up" in caught.value.hint


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "keys": []}',
        '{"version": 1, "keys": []}',
        '{"version": 1, "keys": [{"keyId": "k", "createdAt": 1, "privateKey": "AAAA"}]}',
        '{"version": 1, "keys": [{"keyId": "k", "createdAt": 1, "privateKey": "%"}]}',
        json.dumps({
            "version": 1,
            "keys": [{"keyId": "k", "createdAt": 1, "privateKey": "A" * 43 + "="}],
        }),
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_refused(tmp_path: Path, document: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(document)
    path.chmod(0o600)
    with pytest.raises(UnreadableKeys, match="is not a file of sealing keys"):
        load_keys(path)


def test_a_place_that_takes_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreadableKeys):
        ensure_keys(tmp_path / "file" / "keys.json")
