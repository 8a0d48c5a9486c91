"""What is held against a cap, what is left, and how room gathers under it."""

from __future__ import annotations

import pytest

from kici_scaler.domain.limits import Held, Limit, Tally, Whose
from kici_scaler.domain.resources import Need
from kici_scaler.domain.usage import Ledger
from tests.support.builders import GIB, cap, cluster, held, scaler


def _limit(count: int, cpus: int, gib: int) -> Limit:
    tally = Tally()
    tally.add(count, cpus * 1000, gib * GIB)
    return Limit(tally, cap(cpus=8, gib=8), Whose.SCALER, "a", most=4)


def _need(cpus: int = 0, gib: int = 0) -> Need:
    return Need(cpus * 1000, gib * GIB)


@pytest.mark.parametrize(
    ("held_", "need", "missing"),
    [
        ((3, 0, 0), _need(), 0),
        ((4, 0, 0), _need(), 1),
        ((6, 0, 0), _need(), 3),
        ((0, 6, 0), _need(2), 0),
        ((0, 7, 0), _need(2), 0.5),
        ((0, 8, 5), _need(4, 4), 1),
        ((0, 5, 8), _need(4, 4), 1),
        ((0, 12, 0), _need(2), 3),
    ],
)
def test_what_is_missing_is_counted_in_multiples_of_the_need(
    held_: tuple[int, int, int], need: Need, missing: float
) -> None:
    limit = _limit(*held_)
    assert limit.missing(need) == missing
    assert limit.has_room(need) is (missing <= 0)


def test_kept_room_is_what_is_left_up_to_the_need() -> None:
    limit = _limit(1, 6, 1)
    limit.keep(_need(4, 2))
    assert (limit.held.count, limit.held.cpu_millis, limit.held.memory_bytes) == (2, 8000, 3 * GIB)


def test_keeping_room_never_lowers_what_is_held_past_a_cap() -> None:
    limit = _limit(5, 9, 9)
    limit.keep(_need(4, 2))
    assert (limit.held.count, limit.held.cpu_millis, limit.held.memory_bytes) == (5, 9000, 9 * GIB)


def test_a_reason_tells_when_room_is_kept_for_another() -> None:
    limit = _limit(1, 6, 1)
    before = limit.reason(_need(4))
    limit.keep(_need(4))
    assert "6 of 8 CPUs are taken and 4 are needed" in before
    assert "kept" not in before
    assert "kept for a request that waits longer" in limit.reason(_need(4))


def test_one_room_stands_for_a_scaler_on_a_machine() -> None:
    one = scaler("a", pool="p")
    other = scaler("b", pool="p")
    ledger = Ledger(cluster(one, other, pools={"p": cap(cpus=2)}), [held("a", cpus=1, pool="p")])
    assert ledger.room(one, "m1") is ledger.room(one, "m1")
    ledger.take(ledger.room(one, "m1"), _need(1))
    assert ledger.room(other, "m1").blocker(_need(1)) is not None
    assert ledger.room(other, "m2").blocker(_need(1)) is None
    assert ledger.agents_on["m1"] == 2


def test_what_was_full_is_asked_again_once_an_agent_was_given_back() -> None:
    one = scaler("a", max_agents=1)
    ledger = Ledger(cluster(one), [held("a", "m1"), held("a", "m2")])
    rooms = ledger.rooms(one, ("m1", "m2"))
    assert rooms.best(_need(1)) is None
    ledger.add(held("a", "m2").given_back())
    assert rooms.best(_need(1)) is ledger.room(one, "m2")
    ledger.take(ledger.room(one, "m2"), _need(1))
    assert rooms.best(_need(1)) is None
    assert "no room on 1 other machine" in rooms.shortage(_need(1))


def test_a_full_scaler_tells_every_need_the_same_until_room_is_kept() -> None:
    one = scaler("a", max_agents=1)
    rooms = Ledger(cluster(one), [held("a", "m1")]).rooms(one, ("m1",))
    told = rooms.shortage(_need(1))
    assert told == rooms.shortage(_need(2)) == "scaler `a` holds 1 of its 1 agents on machine `m1`"
    rooms.keep(_need(1))
    assert "kept for a request that waits longer" in rooms.shortage(_need(1))


@pytest.mark.parametrize(
    ("holding", "nearest"),
    [
        ([held("a", "m1", count=4), held("a", "m2", count=4)], "m1"),
        ([held("a", "m1", count=6), held("a", "m2", count=5), held("a", "m3", count=5)], "m2"),
        ([held("a", "m1", count=4), held("a", "m2", cpus=7), held("a", "m3", cpus=6.5)], "m3"),
        ([held("a", "m1", cpus=8), held("a", "m2", count=4), held("a", "m3", cpus=10)], "m1"),
    ],
)
def test_room_is_kept_where_least_is_missing(holding: list[Held], nearest: str) -> None:
    one = scaler("a", max_agents=4, resource_cap=cap(cpus=8))
    everywhere = ("m1", "m2", "m3")[: len(holding)]
    ledger = Ledger(cluster(one), holding)
    ledger.rooms(one, everywhere).keep(_need(2))
    kept = [name for name in everywhere if ledger.room(one, name).limits[0].is_kept]
    assert kept == [nearest]


def test_rows_that_name_no_configured_scaler_count_for_the_cluster() -> None:
    ledger = Ledger(cluster(global_max_agents=3), [held("retired", count=3)])
    assert not ledger.cluster.has_room(_need())
