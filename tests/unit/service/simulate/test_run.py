"""Simulated time: no cap is passed, every job is served or explained, each served once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kici_scaler.domain import warm_plan
from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.scalers import Amount, Cap, Cluster, Resources
from kici_scaler.scalers_file import load
from kici_scaler.service.simulate import plots
from kici_scaler.service.simulate.agents import Agent
from kici_scaler.service.simulate.assumed import Assumptions
from kici_scaler.service.simulate.course import Course
from kici_scaler.service.simulate.figures import Figures, figures_of
from kici_scaler.service.simulate.run import simulate
from kici_scaler.service.simulate.trace import Job

ASSUMED = Assumptions(
    MachineFacts.discovered("linux", "x86_64"),
    machines=2,
    spawn_seconds=2.0,
    boot_seconds=3.0,
    end_seconds=1.0,
)
SCALERS = """
version: 1
globalMaxAgents: 9
globalResourceCap: { maxCpu: 12 }
defaults: { resources: { cpus: 1, memory: 1Gi } }
machinePools: [{ name: shared, cap: { maxCpu: 3 } }]
scalers:
  - name: local
    type: bare-metal
    maxAgents: 2
    maxConcurrentSpawns: 1
    machinePool: shared
    warmPool: { enabled: true, size: 2, idleTimeoutSeconds: 120 }
    labelSets:
      - { labels: [linux], binaryPath: "builtin:agent" }
  - name: cloud
    type: event
    provisioningTargets: [https://example.test/hook]
    maxAgents: 3
    resourceCap: { maxCpu: 4 }
    platform: { os: linux, arch: x64 }
    labelSets:
      - { labels: [cloud] }
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    path: Path = tmp_path_factory.mktemp("scalers") / "scalers.yaml"
    path.write_text(SCALERS)
    return load(path).cluster


def job(number: int, at: float, label: str = "linux", seconds: float = 10.0, cpus: int = 0) -> Job:
    amount = Amount(cpus * 1000 or None, None)
    return Job(
        f"job-{number}", at, frozenset({label}), seconds, resources=Resources(amount, amount)
    )


def _told(cluster: Cluster, jobs: Sequence[Job]) -> tuple[Course, Figures]:
    course = simulate(cluster, jobs, ASSUMED)
    return course, figures_of(course)


def test_a_job_alone_gets_a_warm_agent_at_once_and_another_kind_waits_for_its_start(
    cluster: Cluster,
) -> None:
    _, figures = _told(cluster, [job(1, 100.0), job(2, 200.0, "cloud")])
    assert (figures.served, figures.warm_hits, figures.unserved) == (2, 1, {})
    assert figures.waits.most == 5.0
    assert [(each.scaler, each.jobs, each.warm_hits) for each in figures.scalers] == [
        ("cloud", 1, 0),
        ("local", 1, 1),
    ]
    assert figures.idle_seconds > 100.0


def test_what_nothing_serves_is_told(cluster: Cluster) -> None:
    _, figures = _told(cluster, [job(1, 0.0, "windows"), job(2, 1.0, "cloud", cpus=9)])
    assert figures.served == 0
    assert "no scaler offers `windows`" in figures.unserved
    assert sum(figures.unserved.values()) == 2


def test_a_burst_waits_for_the_cap_that_is_told(cluster: Cluster) -> None:
    course, figures = _told(cluster, [job(n, 50.0, "cloud", 20.0) for n in range(30)])
    assert figures.served == 30
    (cap,) = figures.caps
    assert "cloud" in cap.cap
    assert cap.jobs == 27
    assert cap.job_seconds > 100
    assert figures.peak_agents - 3 == 2, "three of the cloud beside the two that stand ready"
    assert course.peaks["cloud"] == 3


def test_the_spawn_throttle_holds_starts_back(cluster: Cluster) -> None:
    """One start at a time on each machine, two seconds each."""
    bare = replace(
        cluster,
        scalers=tuple(
            replace(each, label_sets=tuple(replace(s, warm_pool=None) for s in each.label_sets))
            for each in cluster.scalers
        ),
    )
    _, figures = _told(bare, [job(n, 50.0, seconds=60.0) for n in range(4)])
    assert (figures.waits.p50, figures.waits.most) == (5.0, 7.0)


def test_a_pool_larger_than_one_pass_fills_is_filled_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_plan, "MOST_FILLS", 1)
    wide = replace(
        cluster, scalers=tuple(replace(each, max_concurrent_spawns=9) for each in cluster.scalers)
    )
    _, figures = _told(wide, [job(n, 100.0) for n in range(2)])
    assert figures.waits.most == 0.0


def test_the_more_urgent_is_served_first(cluster: Cluster) -> None:
    jobs = [job(n, 10.0, "cloud", 30.0) for n in range(3)]
    late = [replace(job(n, 11.0, "cloud", 5.0), priority=n) for n in (7, 8, 9)]
    course, _ = _told(cluster, [*jobs, *late])
    started = {each.job.id: each.started or 0.0 for each in course.fates}
    assert started["job-9"] <= started["job-8"] <= started["job-7"]


jobs_of_any_kind = st.lists(
    st.builds(
        lambda gap, label, seconds, cpus, priority: (gap, label, seconds, cpus, priority),
        st.sampled_from([0.0, 0.0, 0.1, 1.0, 7.0, 300.0]),
        st.sampled_from(["linux", "linux", "cloud", "nowhere"]),
        st.sampled_from([0.0, 1.0, 13.0, 100.0]),
        st.sampled_from([0, 0, 1, 2, 3, 50]),
        st.sampled_from([0, 0, 5]),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(drawn=jobs_of_any_kind)
def test_nothing_is_lost_doubled_or_admitted_over_a_cap(
    cluster: Cluster, drawn: list[tuple[float, str, float, int, int]]
) -> None:
    at, jobs = 1_000.0, []
    for number, (gap, label, seconds, cpus, priority) in enumerate(drawn):
        at += gap
        jobs.append(replace(job(number, at, label, seconds, cpus), priority=priority))
    course, figures = _told(cluster, jobs)
    assert [each.job.id for each in course.fates] == [each.id for each in jobs]
    for fate in course.fates:
        if fate.started is None:
            assert fate.reason
        else:
            assert fate.started >= fate.job.at
            assert fate.ended == pytest.approx(fate.started + fate.job.seconds)
    assert figures.served + sum(figures.unserved.values()) == figures.jobs
    assert course.agents is not None
    served_by = [each.fate for each in course.agents.lives if each.fate is not None]
    assert len(served_by) == len(set(map(id, served_by))), "a job has one agent"
    assert _no_cap_is_passed(cluster, course.agents.lives)
    assert all(a.at <= b.at for a, b in pairwise(course.samples))


def _no_cap_is_passed(cluster: Cluster, lives: Sequence[Agent]) -> bool:
    """Added up anew from when each agent came and went."""
    moments = sorted({each.reserved for each in lives})
    for now in moments:
        there = [a for a in lives if a.reserved <= now and (a.gone is None or a.gone > now)]
        assert len(there) <= cluster.global_max_agents
        assert _within(there, cluster.global_resource_cap)
        for scaler in cluster.scalers:
            for machine in {each.machine_id for each in there}:
                mine = [a for a in there if (a.scaler.name, a.machine_id) == (scaler.name, machine)]
                assert len(mine) <= scaler.max_agents
                assert _within(mine, scaler.resource_cap)
                if scaler.machine_pool:
                    pool = cluster.pool(scaler.machine_pool)
                    assert pool is not None
                    assert _within(mine, pool.cap)
    return True


def _within(agents: Sequence[Agent], cap: Cap) -> bool:
    cpus = sum(each.shape.requests.cpu_millis for each in agents)
    memory = sum(each.shape.requests.memory_bytes for each in agents)
    return (cap.cpu_millis is None or cpus <= cap.cpu_millis) and (
        cap.memory_bytes is None or memory <= cap.memory_bytes
    )


def test_plots_are_a_picture_with_a_line_of_each_course(cluster: Cluster) -> None:
    course, _ = _told(cluster, [job(n, 50.0 + n, "cloud") for n in range(30)])
    drawn = ElementTree.fromstring(plots.picture({"a <b>": course, "other": course}))
    lines = drawn.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 8
    assert all(line.get("points") for line in lines)
    assert "<h1>a &lt;b&gt;</h1>" in plots.page({"a <b>": course}, "a <b>")
