"""What is kept of pools: counts only grow, are folded without loss, and hold nothing absurd."""

from __future__ import annotations

import re
import threading

import pytest
from sqlalchemy.exc import IntegrityError

from kici_scaler.service import admit, warm_status
from kici_scaler.store import warm_books
from kici_scaler.store.warm_books import Count, PoolRow, What, Wishes
from tests.integration.warm.site import Site, label_set, scaler
from tests.support.rows import Rows

_POOL = "INSERT INTO warm_pools (scaler, label_set, target, short) VALUES ('a', 'x', {}, {})"
_COUNT = "INSERT INTO warm_counts (scaler, label_set, what, n) VALUES ('a', 'x', '{}', {})"


@pytest.mark.parametrize(
    ("constraint", "statements"),
    [
        ("warm_pools_pkey", [_POOL.format(1, 0), _POOL.format(2, 0)]),
        ("warm_pools_target_check", [_POOL.format(-1, 0)]),
        ("warm_pools_short_check", [_POOL.format(1, -1)]),
        ("warm_counts_what_check", [_COUNT.format("luck", 1)]),
        ("warm_counts_n_check", [_COUNT.format("hit", 0)]),
    ],
)
def test_the_constraint_refuses(rows: Rows, constraint: str, statements: list[str]) -> None:
    *before, last = statements
    for statement in before:
        rows.execute(statement)
    with pytest.raises(IntegrityError, match=re.escape(constraint)):
        rows.execute(last)


def test_every_thing_that_is_counted_may_be_stored(rows: Rows) -> None:
    rows.call(warm_books.count, [Count("a", "x", what) for what in What])
    assert {each.what for each in rows.call(warm_books.counts)} == set(What)


def test_counts_are_summed_by_pool_and_thing(rows: Rows) -> None:
    rows.call(warm_books.count, [Count("a", "x", What.HIT), Count("a", "x", What.HIT, 2)])
    rows.call(warm_books.count, [Count("a", "x", What.HIT), Count("a", "y", What.HIT)])
    assert rows.call(warm_books.counts) == [
        Count("a", "x", What.HIT, 4), Count("a", "y", What.HIT, 1),
    ]  # fmt: skip
    rows.call(warm_books.count, [])
    assert rows.count("warm_counts") == 3


def test_many_rows_are_folded_and_nothing_is_lost_while_others_count(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_books, "MOST_UNFOLDED", 20)
    seen = []

    def count_on() -> None:
        for _ in range(100):
            rows.call(warm_books.count, [Count("a", "x", What.HIT)])

    counting = [threading.Thread(target=count_on) for _ in range(3)]
    for thread in counting:
        thread.start()
    while any(thread.is_alive() for thread in counting):
        rows.call(warm_books.fold)
        seen.append(sum(each.n for each in rows.call(warm_books.counts)))
    rows.call(warm_books.fold)
    assert rows.call(warm_books.counts) == [Count("a", "x", What.HIT, 300)]
    assert seen == sorted(seen)
    assert rows.count("warm_counts") <= 21


def test_rows_of_pools_are_written_changed_and_dropped(rows: Rows) -> None:
    first = PoolRow("a", "x", target=2, short=1, why="no room")
    rows.call(warm_books.write_pools, [first, PoolRow("b", "y", 1, 0, "")], [])
    changed = PoolRow("a", "x", target=2, short=0, why="")
    rows.call(warm_books.write_pools, [changed], [("b", "y")])
    assert rows.call(warm_books.pools) == {("a", "x"): changed}


def test_who_could_use_freed_capacity_is_told_apart(rows: Rows) -> None:
    assert rows.call(warm_books.wishes) == Wishes()
    rows.request()
    assert rows.call(warm_books.wishes) == Wishes(requests_wait=True)
    rows.call(warm_books.write_pools, [PoolRow("a", "x", 1, 1, "")], [])
    assert rows.call(warm_books.wishes) == Wishes(requests_wait=True, pools_short=True)


def test_a_pass_that_changes_nothing_writes_nothing(site: Site) -> None:
    site.configure(scaler("a", label_set("linux"), size=2))
    site.settle()
    before = site.rows.all("SELECT xmin::text, * FROM warm_pools")
    for _ in range(3):
        site.fill()
    assert site.rows.all("SELECT xmin::text, * FROM warm_pools") == before


def test_the_books_of_a_pool_that_left_are_closed(site: Site) -> None:
    site.configure(scaler("a", size=1), scaler("b", size=1))
    site.fill()
    site.configure(scaler("a", size=1))
    site.fill()
    assert set(site.rows.call(warm_books.pools)) == {("a", "a")}


def test_status_tells_hits_misses_and_what_was_lost(site: Site) -> None:
    site.configure(scaler("a", label_set("linux", "x"), size=2))
    site.settle()
    site.request("linux")
    site.request("linux", resources={"cpus": 4})
    site.request("x")
    site.request("x")
    admit.run_pass(site.runtime)
    (pool,) = warm_status.read(site.runtime).pools
    assert pool.key == ("a", "linux,x")
    assert (pool.hits, pool.misses, pool.cold_starts_avoided) == (2, 2, 2)
    assert pool.counted == {
        What.SPAWN: 2, What.HIT: 2, What.MISS_SHAPE: 1, What.MISS_NONE_READY: 1,
    }  # fmt: skip
