"""Idle agents of the wrong kind make room for a job that waits, and never in vain."""

from __future__ import annotations

from typing import Any

import pytest

from kici_scaler.domain.request import Result
from kici_scaler.service import admit
from tests.integration.warm.site import SHAPE, Site, label_set, scaler


def _wait(site: Site, *labels: str, **more: Any) -> str:
    answer = site.request(*labels, **more)
    assert answer.result is Result.AT_CAPACITY, answer
    return answer.job_id


def _is_started(site: Site, job: str) -> bool:
    site.remove()
    admit.run_pass(site.runtime)
    return bool(site.rows.count("spawns", "job_id = :job", job=job))


@pytest.mark.parametrize(
    "caps",
    [
        {"globalMaxAgents": 3},
        {"globalResourceCap": {"maxCpu": 3}},
        {"globalResourceCap": {"maxMemory": "3Gi"}},
        {"machinePools": [{"name": "p", "cap": {"maxCpu": 3}}]},
    ],
)
def test_as_many_yield_as_the_job_needs_the_oldest_first(site: Site, caps: dict[str, Any]) -> None:
    own: dict[str, Any] = {"machinePool": "p"} if "machinePools" in caps else {}
    site.configure(scaler("a", size=3, **own), scaler("b", **own), **caps)
    site.settle()
    oldest, *others = site.idle()
    job = _wait(site, "b", resources=SHAPE)

    assert site.fill().ended == 1

    assert site.idle() == others
    assert site.rows.get("spawns", oldest)["destroy_reason"] == "idle"
    assert site.fill().ended == 0, "what is ending already is enough"
    assert _is_started(site, job)
    assert site.fill().spawned == 0


def test_a_large_job_has_several_yield(site: Site) -> None:
    site.configure(scaler("a", size=4), scaler("b"), globalResourceCap={"maxCpu": 4})
    site.settle()
    job = _wait(site, "b", resources={"cpus": 3})
    assert site.fill().ended == 3
    assert _is_started(site, job)


def test_nobody_yields_in_vain(site: Site) -> None:
    site.configure(scaler("a", size=2), scaler("b"), globalResourceCap={"maxCpu": 5})
    site.settle()
    site.rows.spawn(scaler="b", cpu_millis=3000, job=site.rows.request(state="assigned"))
    _wait(site, "b", resources={"cpus": 3})
    assert site.fill().ended == 0
    assert len(site.idle()) == 2


def test_nobody_yields_to_a_job_that_its_own_scaler_has_no_room_for(site: Site) -> None:
    site.configure(scaler("a", size=2), scaler("b", maxAgents=1), globalMaxAgents=9)
    site.settle()
    site.request("b")
    _wait(site, "b")
    assert site.fill().ended == 0


def test_nobody_yields_to_a_job_whose_scaler_backs_off(site: Site) -> None:
    site.configure(scaler("a", size=2), scaler("b"), globalMaxAgents=2)
    site.settle()
    site.rows.execute(
        "INSERT INTO scaler_states (scaler, failure_streak, backoff_until)"
        " VALUES ('b', 1, now() + '1h'::interval)"
    )
    assert site.request("b").result is Result.SKIPPED
    assert site.fill().ended == 0


def test_another_label_set_of_the_same_scaler_yields(site: Site) -> None:
    site.configure(scaler("a", label_set("linux"), label_set("gpu"), size=1, maxAgents=2))
    site.settle()
    site.request("gpu")
    job = _wait(site, "gpu")
    assert site.fill().ended == 1
    assert site.idle() == []
    assert _is_started(site, job)


def test_a_reservation_yields_before_an_agent_that_is_ready(site: Site) -> None:
    site.configure(scaler("a", size=1), scaler("b"), globalMaxAgents=2)
    site.settle()
    site.configure(scaler("a", size=2), scaler("b"), globalMaxAgents=2)
    site.fill()
    job = _wait(site, "b")
    assert site.fill().ended == 1
    assert site.states() == {"idle": 1}
    assert _is_started(site, job)


def test_nobody_yields_to_a_job_that_gets_an_agent_still_being_made(site: Site) -> None:
    site.configure(scaler("a", size=1), scaler("c", size=2), globalMaxAgents=3)
    site.fill()
    site.rows.execute("UPDATE spawns SET state = 'booting', spawning_at = now(),"
                      " booting_at = now()")  # fmt: skip
    _wait(site, "a")
    assert site.fill().ended == 0


def test_several_jobs_have_as_many_yield_as_can_start(site: Site) -> None:
    site.configure(scaler("a", size=3), scaler("b", maxAgents=2), globalMaxAgents=3)
    site.settle()
    jobs = [_wait(site, "b") for _ in range(4)]
    assert site.fill().ended == 2
    site.remove()
    admit.run_pass(site.runtime)
    assert site.rows.count("spawns", "job_id = ANY(:jobs)", jobs=jobs) == 2
    assert site.fill().ended == 0


def test_what_a_small_job_would_gain_is_not_given_up_while_room_is_kept_for_an_older_one(
    site: Site,
) -> None:
    site.configure(scaler("a", size=1), scaler("b"), globalResourceCap={"maxCpu": 4})
    site.settle()
    for _ in range(3):
        site.rows.spawn(scaler="b", job=site.rows.request(state="assigned"))
    large = _wait(site, "b", resources={"cpus": 4})
    site.rows.execute(
        "UPDATE scale_requests SET enqueued_at = now() - '1h'::interval WHERE job_id = :job",
        job=large,
    )
    _wait(site, "b", resources=SHAPE)
    assert site.fill().ended == 0


def test_a_busy_agent_never_yields(site: Site) -> None:
    site.configure(scaler("a", size=1), scaler("b"), globalMaxAgents=1)
    site.settle()
    bound = site.request("a").agent_id
    _wait(site, "b")
    assert site.fill().ended == 0
    assert bound is not None
    assert site.rows.get("spawns", bound)["state"] == "idle"
