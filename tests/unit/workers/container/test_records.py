"""What a machine remembers of its agents and runtimes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from workers.container.known import Engines, is_usable_socket
from workers.container.place import Place, Runtime
from workers.container.records import Record, Records
from workers.contract import Deadline
from workers.errors import NotDone, NotOwner
from workers.network.access import Owner
from workers.records import KEPT_SECONDS

OWNER = Owner("default", "scaler-container-0123456789ab")
PLACE = Place("unix:///run/podman/podman.sock", Runtime.PODMAN)


def _soon() -> Deadline:
    return Deadline.after(5)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "agents")


def test_nothing_is_remembered_of_whoever_never_was_here(records: Records) -> None:
    assert records.look(OWNER) == Record()


def test_what_is_saved_is_there_for_the_next_process(records: Records, tmp_path: Path) -> None:
    with records.held(OWNER, _soon()) as held:
        held.save(token=7, place=PLACE, is_destroyed=True)

    assert Records(tmp_path / "agents").look(OWNER) == Record(7, True, place=PLACE)
    assert records.look(Owner("another", OWNER.agent_id)) == Record()


@pytest.mark.parametrize(
    ("record", "token", "to_start", "may"),
    [
        (Record(), 1, True, True),
        (Record(5), 5, True, True),
        (Record(5), 6, True, True),
        (Record(5), 4, False, False),
        (Record(5, is_destroyed=True), 5, False, True),
        (Record(5, is_destroyed=True), 5, True, False),
        (Record(5, is_destroyed=True), 6, True, True),
    ],
)
def test_only_a_lease_that_is_not_older_may_act(
    record: Record, token: int, to_start: bool, may: bool
) -> None:
    if may:
        record.require(token, to_start=to_start)
        return
    with pytest.raises(NotOwner):
        record.require(token, to_start=to_start)


def test_an_agent_is_held_by_one_at_a_time(records: Records) -> None:
    assert not records.is_held(OWNER)
    with records.held(OWNER, _soon()):
        assert records.is_held(OWNER)
        with (
            pytest.raises(NotDone, match="busy"),
            records.held(OWNER, Deadline.after(0.05)),
        ):
            pass
    assert not records.is_held(OWNER)


def test_what_is_long_past_is_forgotten(records: Records, tmp_path: Path) -> None:
    other = Owner("default", "scaler-container-ba9876543210")
    for owner in (OWNER, other):
        with records.held(owner, _soon()) as held:
            held.save(token=7)
    old = next((tmp_path / "agents").glob(f"*{OWNER.agent_id}.json"))
    past = time.time() - KEPT_SECONDS - 1
    os.utime(old, (past, past))

    records.prune(time.time())

    assert records.look(OWNER) == Record()
    assert records.look(other).token == 7


def test_a_record_that_cannot_be_read_is_no_empty_one(records: Records, tmp_path: Path) -> None:
    with records.held(OWNER, _soon()) as held:
        held.save(token=7)
    next((tmp_path / "agents").glob("*.json")).write_text("{")

    with pytest.raises(NotDone, match="cannot be read"):
        records.look(OWNER)


def test_a_runtime_is_remembered_once_it_was_wanted(tmp_path: Path) -> None:
    socket = {"socketPath": "/srv/docker.sock"}
    engines = Engines(tmp_path, {})
    looked_at = engines.looked_up({"socketPath": "/srv/other.sock"})

    wanted = engines.for_options(socket)

    assert Engines(tmp_path, {}).all()[0].place == wanted.place
    assert looked_at.place not in [each.place for each in engines.all()]


def test_a_runtime_is_forgotten_when_it_holds_nothing_or_is_long_gone(tmp_path: Path) -> None:
    engines = Engines(tmp_path, {})
    place = engines.for_options({"socketPath": "/srv/docker.sock"}).place

    engines.forget(place, unwanted_for=KEPT_SECONDS)
    assert [each.place for each in engines.all()] == [place]

    engines.forget(place)
    assert engines.all() == ()


def test_a_file_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "docker.sock").touch()

    assert not is_usable_socket(str(tmp_path / "docker.sock"))
    assert not is_usable_socket(str(tmp_path / "nothing"))
