"""Addresses of guests on real Postgres: one guest each, whoever asks at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.exc import IntegrityError

from kici_scaler.domain.guest_addresses import GuestAddress, GuestNetwork
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import guest_addresses
from kici_scaler.service.guest_addresses import NoAddressLeft, TooContended
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import guest_addresses as store
from tests.support.rows import Rows

NETWORK = GuestNetwork("10.0.0.0/24", "10.0.0.1", "255.255.255.0")
SMALL = GuestNetwork("10.0.0.0/28", "10.0.0.1", "255.255.255.240")
MACHINE = "m1"


@pytest.fixture
def runtime(rows: Rows) -> Runtime:
    """The use cases on the test's database."""
    return Runtime(rows.engine, "test")


def _give(
    runtime: Runtime,
    agent: str,
    network: GuestNetwork = NETWORK,
    taps: tuple[str, ...] = (),
    machine: str = MACHINE,
    foreign: tuple[str, ...] = (),
) -> GuestAddress:
    return guest_addresses.allocate(
        runtime,
        machine_id=machine,
        agent_id=agent,
        scaler="pool",
        network=network,
        taps=taps or (f"kici-{agent}", f"kici-{agent}-2"),
        foreign=foreign,
    )


def test_addresses_are_given_in_order_and_given_again_once_released(runtime: Runtime) -> None:
    first, second = _give(runtime, "a"), _give(runtime, "b")

    assert first == GuestAddress("10.0.0.2", "06:00:AC:00:00:02", "kici-a")
    assert second.address == "10.0.0.3"
    assert guest_addresses.release(runtime, machine_id=MACHINE, agent_id="a")
    assert _give(runtime, "c").address == "10.0.0.2"


def test_an_agent_that_asks_again_has_what_it_had(runtime: Runtime) -> None:
    assert _give(runtime, "a") == _give(runtime, "a")
    assert len(guest_addresses.held(runtime, machine_id=MACHINE)) == 1


def test_a_release_can_be_repeated(runtime: Runtime) -> None:
    _give(runtime, "a")

    assert guest_addresses.release(runtime, machine_id=MACHINE, agent_id="a")
    assert not guest_addresses.release(runtime, machine_id=MACHINE, agent_id="a")


def test_each_machine_has_a_network_of_its_own(runtime: Runtime) -> None:
    assert _give(runtime, "a").address == _give(runtime, "b", machine="m2").address


def test_what_others_have_there_is_left_to_them(runtime: Runtime) -> None:
    given = _give(runtime, "a", foreign=("10.0.0.2", "kici-a"))

    assert (given.address, given.tap) == ("10.0.0.3", "kici-a-2")


def test_two_agents_whose_ids_end_alike_have_interfaces_of_different_names(
    runtime: Runtime,
) -> None:
    names = ("kici-00000001", "kici-00000002")

    assert [_give(runtime, each, taps=names).tap for each in ("a", "b")] == list(names)
    with pytest.raises(TooContended, match="name"):
        _give(runtime, "c", taps=names)


def test_a_full_network_says_so(runtime: Runtime) -> None:
    network = GuestNetwork("10.0.0.0/30", "10.0.0.1", "255.255.255.252")
    _give(runtime, "a", network)

    with pytest.raises(NoAddressLeft, match="IP pool exhausted"):
        _give(runtime, "b", network)
    guest_addresses.release(runtime, machine_id=MACHINE, agent_id="a")
    assert _give(runtime, "b", network).address == "10.0.0.2"


def test_all_that_ask_at_once_get_an_address_of_their_own(runtime: Runtime) -> None:
    agents = [f"agent-{number}" for number in range(13)]

    with ThreadPoolExecutor(6) as pool:
        given = list(pool.map(lambda agent: _give(runtime, agent, SMALL), agents))

    assert len({each.address for each in given}) == len(agents)
    with pytest.raises(NoAddressLeft):
        _give(runtime, "one too many", SMALL)


def test_one_agent_that_many_ask_for_gets_one_address(runtime: Runtime) -> None:
    with ThreadPoolExecutor(6) as pool:
        given = set(pool.map(lambda _: _give(runtime, "a"), range(6)))

    assert len(given) == 1


@pytest.mark.parametrize("same", ["address", "tap", "agent_id"])
def test_the_database_itself_holds_each_to_be_one(rows: Rows, same: str) -> None:
    values = {"address": "10.0.0.9", "tap": "kici-1", "agent_id": "a"}
    other = {"address": "10.0.0.8", "tap": "kici-2", "agent_id": "b"}
    insert = (
        "INSERT INTO guest_addresses (machine_id, address, agent_id, scaler, tap, mac) "
        "VALUES ('m1', CAST(:address AS inet), :agent_id, 's', :tap, 'x')"
    )
    rows.execute(insert, **values)

    with pytest.raises(IntegrityError):
        rows.execute(insert, **{**other, same: values[same]})


def test_a_pick_that_was_lost_is_told_and_taken_by_nobody_twice(rows: Rows) -> None:
    wanted = GuestAddress("10.0.0.2", "06:00:AC:00:00:02", "kici-a")

    assert rows.call(store.take, MACHINE, "a", "pool", wanted)
    assert not rows.call(store.take, MACHINE, "b", "pool", wanted)


def test_picks_lost_again_and_again_end_with_a_reason(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def lost(*_arguments: object) -> bool:
        tries.append("lost")
        return False

    monkeypatch.setattr(store, "take", lost)

    with pytest.raises(TooContended, match="heavy contention"):
        _give(runtime, "a")
    assert len(tries) == guest_addresses.MOST_TRIES


def test_an_address_whose_agent_has_no_row_is_told_after_a_while(
    runtime: Runtime, rows: Rows
) -> None:
    _give(runtime, "a")

    def unowned(seconds: float) -> frozenset[str]:
        return guest_addresses.unowned(runtime, machine_id=MACHINE, older_than_seconds=seconds)

    assert unowned(60) == frozenset()
    rows.execute(
        "UPDATE guest_addresses SET allocated_at = allocated_at - make_interval(secs => 120)"
    )
    assert unowned(60) == {"a"}


def test_an_agent_that_has_registered_is_told(runtime: Runtime, rows: Rows) -> None:
    waiting = rows.spawn(SpawnState.BOOTING)
    there = rows.spawn(SpawnState.IDLE)
    for agent in (waiting, there):
        _give(runtime, agent, taps=(f"kici-{agent[-8:]}",))

    assert guest_addresses.connected(runtime, machine_id=MACHINE) == {there}
