"""Only what idles beyond the target goes, the oldest first; a reload ends the rest at once."""

from __future__ import annotations

from typing import Any

import pytest

from kici_scaler.domain.scalers import WarmPool
from kici_scaler.service import operations, warm_pools, warm_status
from kici_scaler.store import agents
from tests.integration.warm.site import GATEWAY, Site, label_set, pool, scaler
from tests.support.rows import MACHINE


@pytest.fixture
def size(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What schedules say at the moment: the size of every pool, when there is one here."""
    said: dict[str, int] = {}

    def target(own: WarmPool | None, _now: object) -> int:
        return said.get("now", 0 if own is None else own.size)

    monkeypatch.setattr(warm_pools, "pool_target", target)
    return said


def _why(site: Site) -> set[tuple[str, str]]:
    found = site.rows.all("SELECT destroy_reason, condemned_why FROM outcomes"
                          " WHERE destroy_reason IS NOT NULL")  # fmt: skip
    return {(row.destroy_reason, row.condemned_why) for row in found}


def test_a_pool_at_its_target_never_changes(site: Site) -> None:
    site.configure(scaler("a", label_set("linux"), label_set("gpu"), size=3))
    site.settle()
    before = site.idle()
    for _ in range(11):
        site.age(300)
        done = site.fill()
        assert (done.spawned, done.ended) == (0, 0)
    assert sorted(site.idle()) == sorted(before)
    assert site.counted() == {"spawn": 6}


def test_surplus_goes_the_oldest_first_once_it_idled_for_long_enough(
    site: Site, size: dict[str, int]
) -> None:
    site.configure(scaler("a", size=3, warmPool=pool(3, idle=100)))
    site.settle()
    oldest, *others = site.idle()
    size["now"] = 2
    site.age(90)
    assert site.fill().ended == 0
    site.age(20)
    assert site.fill().ended == 1
    assert site.idle() == others
    assert site.rows.get("spawns", oldest)["destroy_reason"] == "idle"
    site.age(1000)
    assert site.fill().ended == 0
    assert site.counted()["reap"] == 1


def test_a_target_of_nothing_drains_the_pool(site: Site, size: dict[str, int]) -> None:
    site.configure(scaler("a", size=2))
    site.settle()
    size["now"] = 0
    assert site.fill().ended == 0
    site.age(301)
    site.settle()
    assert site.states() == {}


def test_a_draining_cluster_lets_its_idle_agents_go_after_their_time(site: Site) -> None:
    site.configure(scaler("a", size=2))
    site.settle()
    operations.set_draining(site.runtime, True, actor="test")
    assert site.fill().ended == 0
    site.age(301)
    assert site.fill().ended == 2


def test_whoever_has_a_job_or_is_absent_is_not_reaped(site: Site, size: dict[str, int]) -> None:
    site.configure(scaler("a", size=3))
    site.settle()
    bound = site.request("a").agent_id
    absent, _ = site.idle()
    site.rows.call(agents.disconnect, gateway=GATEWAY, connections=[(absent, 1)], settle_seconds=2)
    size["now"] = 0
    site.age(1000)
    assert site.fill().ended == 1
    assert {bound, absent} <= {row[0] for row in site.rows.all(
        "SELECT agent_id FROM spawns WHERE state = 'idle'")}  # fmt: skip


def test_an_agent_somebody_works_on_is_left_for_the_next_pass(
    site: Site, size: dict[str, int]
) -> None:
    site.configure(scaler("a", size=1))
    site.settle()
    (agent,) = site.idle()
    size["now"] = 0
    site.age(1000)
    with site.rows.begin() as other:
        agents.lock_spawn(other, agent)
        assert site.fill().ended == 0
    assert site.fill().ended == 1


def test_idle_agents_leave_a_draining_machine_and_come_up_elsewhere(site: Site) -> None:
    site.configure(scaler("a", size=2))
    site.settle()
    site.rows.machine("m2")
    operations.set_machine_draining(site.runtime, MACHINE, True, actor="test")
    assert site.fill().ended == 2
    site.remove()
    assert site.fill().spawned == 2
    assert {row[0] for row in site.rows.all("SELECT machine_id FROM spawns")} == {"m2"}


@pytest.mark.parametrize("how", ["scaler", "label set", "pool"])
def test_what_left_the_configuration_takes_its_idle_agents_with_it_at_once(
    site: Site, how: str
) -> None:
    kept, gone = label_set("kept"), label_set("gone")
    site.configure(scaler("a", kept, gone, size=2), scaler("b", size=1))
    site.settle()
    bound = site.request("gone").agent_id
    assert bound is not None
    match how:
        case "scaler":
            site.configure(scaler("b", size=1))
        case "label set":
            site.configure(scaler("a", kept, size=2), scaler("b", size=1))
        case "pool":
            site.configure(scaler("a", kept, gone), scaler("b", size=1))
    left = {row.agent_id: row.state for row in site.rows.all("SELECT agent_id, state FROM spawns")}
    assert left[bound] == "idle"
    expected = {"scaler": 1, "label set": 3, "pool": 1}[how]
    assert len(site.idle()) == expected
    assert {reason for reason, _ in _why(site)} == {"drain"}


@pytest.mark.parametrize("made", ["reserved", "booting"])
def test_what_is_only_being_made_for_a_pool_that_left_goes_as_well(site: Site, made: str) -> None:
    site.configure(scaler("a", size=2))
    site.fill()
    if made == "booting":
        site.rows.execute("UPDATE spawns SET state = 'booting', spawning_at = now(),"
                          " booting_at = now()")  # fmt: skip
    site.configure(scaler("a"))
    assert site.states() == ({} if made == "reserved" else {"destroying": 2})


def test_a_pool_that_a_reload_made_smaller_shrinks_at_once_the_oldest_first(site: Site) -> None:
    site.configure(scaler("a", size=5))
    site.settle()
    ready = site.idle()
    site.configure(scaler("a", size=2))
    assert site.idle() == ready[3:]
    site.settle()
    assert site.idle() == ready[3:]
    assert site.counted()["reap"] == 3


def test_what_a_smaller_pool_still_makes_goes_before_what_is_ready(site: Site) -> None:
    site.configure(scaler("a", size=2))
    site.settle()
    ready = site.idle()
    site.configure(scaler("a", size=4))
    site.fill()
    site.configure(scaler("a", size=2))
    assert site.states() == {"idle": 2}
    assert site.idle() == ready


def test_a_reload_leaves_surplus_of_schedules_its_time(site: Site, size: dict[str, int]) -> None:
    site.configure(scaler("a", size=3))
    site.settle()
    size["now"] = 1
    site.configure(scaler("a", size=3), scaler("b", size=3))
    assert len(site.idle()) == 3


def test_a_reload_of_a_draining_cluster_takes_no_more_agents_than_the_drain(site: Site) -> None:
    site.configure(scaler("a", size=2))
    site.settle()
    operations.set_draining(site.runtime, True, actor="test")
    site.configure(scaler("a", size=2), scaler("b"))
    assert len(site.idle()) == 2


def test_a_larger_pool_is_filled_by_the_next_pass(site: Site) -> None:
    site.configure(scaler("a", size=1))
    site.settle()
    site.configure(scaler("a", size=3))
    assert site.fill().spawned == 2


CHANGES: dict[str, dict[str, Any]] = {
    "program": {"binaryPath": "/opt/agent"},
    "environment": {"env": {"A": "1"}},
    "shape": {"resources": {"cpus": 2}},
    "labels": {"labels": ["a", "new"]},
}


@pytest.mark.parametrize("what", [*CHANGES, "gate"])
def test_agents_of_a_changed_label_set_are_replaced_one_by_one(site: Site, what: str) -> None:
    site.configure(scaler("a", label_set("a"), size=4))
    site.settle()
    old = set(site.idle())
    gate = {"mandatoryLabels": ["a"]} if what == "gate" else {}
    changed = label_set("a") | CHANGES.get(what, {})
    site.configure(scaler("a", changed, size=4, **gate))
    assert set(site.idle()) == old
    least, together = 4, 0
    for _ in range(60):
        done = site.fill()
        live = sum(site.states().values())
        least, together = min(least, len(site.idle())), max(together, live)
        if not (site.remove() or site.start() or done.spawned or done.ended):
            break
    assert (least, together) == (3, 4)
    assert not set(site.idle()) & old
    assert len(site.idle()) == 4
    assert warm_status.read(site.runtime).pools[0].outdated == 0
    assert {why for _, why in _why(site)} == {
        "its label set changed; an agent of the new one takes its place"
    }


def test_what_changes_nothing_of_an_agent_replaces_none(site: Site) -> None:
    first, second = label_set("a"), label_set("b")
    site.configure(scaler("a", first, second, size=1))
    site.settle()
    before = site.idle()
    site.configure(scaler("a", second, first, size=1, maxAgents=7), globalMaxAgents=9)
    site.settle()
    assert site.idle() == before


def test_outdated_agents_wait_while_their_scaler_cannot_start_others(site: Site) -> None:
    site.configure(scaler("a", size=2))
    site.settle()
    site.configure(scaler("a", label_set("a", env={"A": "1"}), size=2))
    site.rows.execute(
        "INSERT INTO scaler_states (scaler, failure_streak, backoff_until)"
        " VALUES ('a', 1, now() + '1h'::interval)"
    )
    assert site.fill().ended == 0
    site.rows.execute("DELETE FROM scaler_states")
    assert site.fill().ended == 1


def test_an_outdated_agent_stays_when_its_successor_would_find_no_room(site: Site) -> None:
    site.configure(scaler("a", size=2, resourceCap={"maxCpu": 2}))
    site.settle()
    larger = label_set("a") | {"resources": {"cpus": 2}}
    site.configure(scaler("a", larger, size=2, resourceCap={"maxCpu": 2}))
    assert site.fill().ended == 0
    assert len(site.idle()) == 2


def test_outdated_agents_still_serve_jobs_that_fit_them(site: Site) -> None:
    site.configure(scaler("a", size=1))
    site.settle()
    (agent,) = site.idle()
    site.configure(scaler("a", label_set("a", env={"A": "1"}), size=1))
    assert site.request("a").agent_id == agent


def test_a_reservation_of_an_old_label_set_is_given_back(site: Site) -> None:
    site.configure(scaler("a", size=2))
    site.fill()
    site.configure(scaler("a", label_set("a", env={"A": "1"}), size=2))
    site.fill()
    site.settle()
    assert len(site.idle()) == 2
    assert warm_status.read(site.runtime).pools[0].outdated == 0
