"""A reload with an agent in every state, for a scaler in every bucket: none lost, none doubled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from kici_scaler.domain.reload import Bucket
from kici_scaler.domain.spawn import ENDING, SpawnState
from kici_scaler.service.reload import Reloaded, ReloadRejected
from kici_scaler.store import retiring
from tests.integration.reload.yard import Document, Yard, scaler
from tests.support.rows import Rows

S = SpawnState
LOCAL = scaler("local", "linux")
"""Whose agents are in every state."""
OTHER = scaler("other", "linux", "big")
"""Serves the same jobs, but only those that no agent of `local` could run."""


@dataclass
class Cast:
    """An agent of `local` in each state, with a job where one belongs, and without one."""

    rows: Rows
    with_job: dict[SpawnState, tuple[str, str]]
    warm: dict[SpawnState, str]


def _cast(yard: Yard) -> Cast:
    rows = yard.rows
    jobs = {state: rows.request(f"job-{state}", state="assigned") for state in
            (S.RESERVED, S.SPAWNING, S.BOOTING, S.IDLE)}  # fmt: skip
    jobs[S.BUSY] = rows.request("job-busy", state="running")
    return Cast(
        rows,
        {state: (rows.spawn(state, job=job), job) for state, job in jobs.items()},
        {state: rows.spawn(state) for state in S if state is not S.BUSY},
    )


def _changed(**more: Any) -> Document:
    return {**LOCAL, **more}


def _kept(yard: Yard) -> Reloaded:
    return yard.reload(LOCAL, OTHER, scaler("new"))


def _raised(yard: Yard) -> Reloaded:
    return yard.reload(_changed(maxConcurrentSpawns=7, orchestratorUrl="ws://new/"), OTHER)


def _removed(yard: Yard) -> Reloaded:
    return yard.reload(OTHER)


@pytest.fixture
def cast(yard: Yard) -> Cast:
    yard.reload(LOCAL, OTHER)
    return _cast(yard)


def _expect_untouched(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]], agent: str
) -> None:
    assert after.get(agent) == before[agent], agent


def test_agents_of_a_scaler_that_stays_the_same_stay_as_they_are(yard: Yard, cast: Cast) -> None:
    before = yard.spawns()
    done = _kept(yard)
    assert done.plan.named(Bucket.KEPT) == ("local", "other")
    after = yard.spawns()
    for agent, _ in cast.with_job.values():
        _expect_untouched(before, after, agent)
    for state in ENDING:
        _expect_untouched(before, after, cast.warm[state])
    assert not yard.unaccounted()


def test_of_a_scaler_that_changed_only_what_has_not_begun_is_decided_anew(
    yard: Yard, cast: Cast
) -> None:
    before = yard.spawns()
    done = _raised(yard)
    assert done.plan.named(Bucket.CHANGED) == ("local",)
    after = yard.spawns()
    reserved, job = cast.with_job[S.RESERVED]
    assert reserved not in after
    (anew,) = yard.holders(job)
    assert (after[anew]["scaler"], after[anew]["state"]) == ("local", "reserved")
    assert (after[anew]["revision_id"], after[anew]["spawn_slots"]) == (done.revision_id, 7)
    for state, (agent, _) in cast.with_job.items():
        if state is not S.RESERVED:
            _expect_untouched(before, after, agent)
    assert not yard.unaccounted()


def test_a_scaler_that_leaves_keeps_what_has_begun_and_its_other_jobs_go_elsewhere(
    yard: Yard, cast: Cast
) -> None:
    before = yard.spawns()
    done = _removed(yard)
    assert done.plan.named(Bucket.REMOVED) == ("local",)
    assert sum(done.drained["local"].values()) == len(before)
    after = yard.spawns()
    reserved, job = cast.with_job[S.RESERVED]
    assert reserved not in after
    (elsewhere,) = yard.holders(job)
    assert after[elsewhere]["scaler"] == "other"
    for state in (S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY):
        _expect_untouched(before, after, cast.with_job[state][0])
    for state in ENDING:
        _expect_untouched(before, after, cast.warm[state])
    for state in (S.SPAWNING, S.BOOTING, S.IDLE):
        ended = after[cast.warm[state]]
        assert (ended["state"], ended["destroy_reason"]) == ("destroying", "drain")
    assert cast.warm[S.RESERVED] not in after
    assert not yard.unaccounted()
    assert yard.rows.count("scale_requests", "requeues > 0") == 0


def test_a_scaler_that_comes_back_has_its_live_agents_again(yard: Yard, cast: Cast) -> None:
    _removed(yard)
    before = yard.spawns()
    done = yard.reload(LOCAL, OTHER)
    assert done.plan.named(Bucket.RESURRECTED) == ("local",)
    assert yard.spawns() == before
    assert yard.rows.call(retiring.all_retiring) == {}
    answer = yard.ask("linux")
    assert answer.scaler == "local"
    assert not yard.unaccounted()


@pytest.mark.parametrize("left_before", [False, True], ids=["in force", "retiring"])
def test_another_type_is_rejected_and_nothing_changes(
    yard: Yard, cast: Cast, left_before: bool
) -> None:
    if left_before:
        _removed(yard)
    before = yard.dump()
    with pytest.raises(ReloadRejected, match="new name") as caught:
        yard.reload(scaler("local", "linux", type="container"), OTHER)
    assert caught.value.hint
    assert yard.dump() == before


def test_everything_that_stands_against_a_reload_is_named_at_once(yard: Yard) -> None:
    yard.reload(scaler("a"), scaler("b"), scaler("c"))
    yard.ask("c")
    yard.start()
    yard.reload(scaler("a"), scaler("b"))
    with pytest.raises(ReloadRejected) as caught:
        yard.reload(*(scaler(name, type="container") for name in "abc"))
    assert [reason.split("'")[1] for reason in caught.value.reasons] == ["a", "b", "c"]


CHANGES: dict[str, Callable[[Yard], Reloaded]] = {
    "kept": _kept, "changed": _raised, "removed": _removed,
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_all_jobs_are_run_to_their_end_after_the_reload(
    yard: Yard, change: Callable[[Yard], Reloaded]
) -> None:
    """Real steps instead of rows: each job is in another one when the reload comes."""
    yard.reload(LOCAL, OTHER)
    for _ in range(3):
        yard.ask("linux")
    yard.start(most=2)
    booting, idle = yard.agents_in(S.BOOTING)
    yard.connect(idle)
    for state in (S.IDLE, S.BUSY):
        yard.ask("linux")
        (agent,) = set(yard.start(most=1)) & set(yard.agents_in(S.BOOTING)) - {booting}
        yard.connect(agent)
        if state is S.BUSY:
            assert yard.accept(agent)
    change(yard)
    assert not yard.unaccounted()
    yard.run_everything()
    states = yard.rows.all("SELECT state, count(*) AS n FROM scale_requests GROUP BY state")
    assert [tuple(row) for row in states] == [("succeeded", 5)]
    assert yard.rows.count("outcomes", "job_id IS NOT NULL") == 5
    assert yard.rows.call(retiring.all_retiring) == {}
