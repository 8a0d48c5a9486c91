"""Any number of passes at once keep pools exactly at their size."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kici_scaler.service import admit
from kici_scaler.store.section import Contended
from tests.integration.warm.site import Site, label_set, scaler

POOLS, SIZE, PASSES = 20, 25, 50

_WATCH = """
    CREATE TABLE watched (pool text NOT NULL, held bigint NOT NULL);
    CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO watched SELECT scaler || ':' || label_set::text, count(*) FROM spawns
        WHERE warm AND job_id IS NULL GROUP BY 1;
        RETURN NULL;
    END $$;
    CREATE TRIGGER watch AFTER INSERT OR UPDATE OR DELETE ON spawns
        FOR EACH STATEMENT EXECUTE FUNCTION watch();
"""
_UNWATCH = """
    DROP TRIGGER watch ON spawns; DROP FUNCTION watch(); DROP TABLE watched;
"""


@pytest.fixture
def watched(site: Site) -> Iterator[Site]:
    """A site that writes down how many agents each pool has after every statement."""
    site.rows.execute(_WATCH)
    try:
        yield site
    finally:
        site.rows.execute(_UNWATCH)


def _try_fill(site: Site) -> int:
    try:
        return site.fill().spawned
    except Contended:
        return 0


def test_fifty_passes_at_once_fill_twenty_pools_exactly(watched: Site) -> None:
    site = watched
    site.configure(
        *(
            scaler(f"s{number}", label_set(f"l{number}", "x"), label_set(f"l{number}", "y"),
                   size=SIZE)
            for number in range(POOLS // 2)
        )
    )  # fmt: skip
    with ThreadPoolExecutor(PASSES) as pool:
        spawned = list(pool.map(lambda _: _try_fill(site), range(PASSES)))

    assert sum(spawned) == POOLS * SIZE
    assert site.states() == {"reserved": POOLS * SIZE}
    most = dict(tuple(row) for row in site.rows.all(
        "SELECT pool, max(held) FROM watched GROUP BY pool"))  # fmt: skip
    assert len(most) == POOLS
    assert set(most.values()) == {SIZE}


def test_passes_and_jobs_at_once_never_exceed_a_pool_or_a_cap(watched: Site) -> None:
    site = watched
    site.configure(
        scaler("a", label_set("linux"), label_set("gpu"), size=6, maxAgents=15), globalMaxAgents=18
    )
    site.settle()

    def one(number: int) -> None:
        if number % 3 == 0:
            site.request("linux" if number % 2 else "gpu")
        else:
            _try_fill(site)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(60)))
    for _ in range(5):
        admit.run_pass(site.runtime)
        site.fill()

    assert site.rows.one("SELECT max(held) FROM watched") <= 6
    assert sum(site.states().values()) == 15
    twice = site.rows.all(
        "SELECT job_id FROM spawns WHERE job_id IS NOT NULL GROUP BY 1 HAVING count(*) > 1"
    )
    assert not twice
