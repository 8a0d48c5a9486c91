"""What an account can enter is read off the folders on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kici_scaler.embedded.account import Account, account_for, closed_folder, reachable_copy
from kici_scaler.embedded.folder import make_temporary_home

STRANGER = Account("stranger", 54_321, 54_321)


@pytest.fixture
def place() -> Iterator[Path]:
    place = make_temporary_home("kici-account-")
    place.chmod(0o711)
    yield place
    place.chmod(0o700)
    for folder in sorted(place.rglob("*"), reverse=True):
        folder.rmdir() if folder.is_dir() else folder.unlink()
    place.rmdir()


def test_the_callers_own_account_is_not_judged(place: Path) -> None:
    place.chmod(0o000)
    assert closed_folder(place, None) is None


def test_the_outermost_closed_folder_is_named(place: Path) -> None:
    (place / "open").mkdir(mode=0o711)
    (place / "open" / "closed").mkdir(mode=0o700)
    (place / "open" / "closed" / "inner").mkdir(mode=0o700)
    assert closed_folder(place / "open", STRANGER) is None
    assert closed_folder(place / "open" / "closed" / "inner", STRANGER) == place / "open/closed"
    assert closed_folder(place / "open" / "closed" / "new", STRANGER) == place / "open/closed"


def test_an_owner_enters_by_the_owners_bits(place: Path) -> None:
    place.chmod(0o700)
    owner = Account("owner", place.stat().st_uid, 54_321)
    assert closed_folder(place, owner) is None


def test_only_unreachable_programs_are_copied(place: Path) -> None:
    source = place / "programs"
    source.mkdir(mode=0o711)
    (source / "tool").write_text("v1")
    assert reachable_copy(source, place / "copies" / "programs", STRANGER) == source
    source.chmod(0o700)
    copy = reachable_copy(source, place / "copies" / "programs", STRANGER)
    assert (copy / "tool").read_text() == "v1"
    (source / "tool").write_text("v2")
    assert (reachable_copy(source, copy, STRANGER) / "tool").read_text() == "v1"


@pytest.mark.skipif(os.geteuid() == 0, reason="root changes the account")
def test_nobody_but_root_changes_the_account(place: Path) -> None:
    assert account_for(place) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the account")
def test_root_gives_servers_to_an_account_without_rights_and_sticks_to_it(place: Path) -> None:
    account = account_for(place / "new")
    assert account is not None
    assert account.uid != 0
    (place / "old").mkdir()
    os.chown(place / "old", 65_534, 65_534)
    kept = account_for(place / "old")
    assert kept is not None
    assert kept.uid == 65_534
