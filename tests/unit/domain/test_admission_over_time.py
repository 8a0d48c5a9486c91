"""Admission as it goes on: requests, ends, cancellations, caps and machines that change."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from kici_scaler.domain.admission import Admit, Situation, decide
from kici_scaler.domain.limits import Held
from kici_scaler.domain.machines import MachineView
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.scalers import BackendType, Cap, Cluster
from kici_scaler.domain.spawn import EDGES, ENDING, SpawnState
from tests.support.builders import cap, cluster, machine, scaler, situation, waiting

NAMES = ("local", "other", "cloud")
MACHINES = ("m1", "m2")
AFTER = {state: [edge.target for edge in EDGES if edge.source is state] for state in SpawnState}


@dataclass
class _Spawn:
    """A row of the fake store."""

    job: str
    scaler: str
    machine: str | None
    pool: str | None
    cpu_millis: int
    memory_bytes: int
    state: SpawnState = SpawnState.RESERVED


class AdmissionOverTime(RuleBasedStateMachine):
    """The pure core over a store that does exactly what rows do."""

    jobs = Bundle("jobs")
    spawns = Bundle("spawns")

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()
        self.seconds = itertools.count(1)
        self.waiting: dict[str, Waiting] = {}
        self.over: set[str] = set()
        self.rows: dict[int, _Spawn] = {}
        self.cluster = Cluster()
        self.machines: dict[str, MachineView] = {}

    @initialize(
        most=st.integers(1, 4),
        cpus=st.none() | st.integers(2, 8),
        pool=st.integers(2, 8),
        all_=st.integers(1, 8),
    )
    def configure(self, most: int, cpus: int | None, pool: int, all_: int) -> None:
        self.cluster = cluster(
            scaler("local", "any", "local", max_agents=most, pool="p"),
            scaler("other", "other", resource_cap=cap(cpus=cpus), pool="p"),
            scaler("cloud", "cloud", type=BackendType.EVENT, max_agents=most),
            global_max_agents=all_,
            pools={"p": cap(cpus=pool)},
        )
        self.machines = {name: machine(name) for name in MACHINES}

    @rule(
        target=jobs,
        label=st.sampled_from(["any", "local", "other", "cloud"]),
        cpus=st.none() | st.integers(1, 4),
        age=st.sampled_from([0.0, 60.0]),
    )
    def submit(self, label: str, cpus: int | None, age: float) -> str:
        job = f"job-{next(self.numbers)}"
        self.waiting[job] = waiting(label, job=job, cpus=cpus, age=age)
        return job

    @rule(job=jobs)
    def submit_again(self, job: str) -> None:
        """A row per job: a repeat finds it, whatever has become of it."""
        assert (job in self.waiting) + (job in self.over) + (job in self._live_jobs()) == 1

    @rule(job=consumes(jobs))
    def cancel(self, job: str) -> None:
        self.waiting.pop(job, None)
        self.over.add(job)
        for row in self.rows.values():
            if row.job == job and row.state not in ENDING:
                row.state = SpawnState.DESTROYING

    @rule(target=spawns)
    def admit(self) -> MultipleResults[int]:
        """A pass: what it admits becomes rows, all or none of each."""
        requests = sorted(
            self.waiting.values(), key=lambda each: (-each.priority, each.enqueued_at)
        )
        made = []
        for each in decide(requests, self._moment()):
            if isinstance(each, Admit):
                made.append(self._reserve(each))
                self._assert_caps_hold_for(each)
        return multiple(*made)

    @rule(spawn=spawns, choice=st.integers(0, 9))
    def move(self, spawn: int, choice: int) -> None:
        """A live spawn goes any way that the table knows."""
        row = self.rows.get(spawn)
        if row is None:
            return
        ways = AFTER[row.state]
        target = ways[choice % len(ways)]
        was_holding = row.state not in ENDING
        if target is None:
            del self.rows[spawn]
        else:
            row.state = target
        if was_holding and (target is None or target in ENDING):
            self._bereave(row.job, succeeded=choice % 2 == 0)

    @rule(
        name=st.sampled_from(NAMES),
        most=st.integers(1, 5),
        cpus=st.none() | st.integers(1, 8),
        all_=st.integers(1, 10),
    )
    def reload(self, name: str, most: int, cpus: int | None, all_: int) -> None:
        """Caps change, also below what is held: nothing is killed for it."""
        self.cluster = replace(
            self.cluster,
            global_max_agents=all_,
            scalers=tuple(
                replace(each, max_agents=most, resource_cap=cap(cpus=cpus))
                if each.name == name
                else each
                for each in self.cluster.scalers
            ),
        )

    @precondition(lambda self: self.machines)
    @rule(name=st.sampled_from(MACHINES), is_up=st.booleans())
    def drain(self, name: str, is_up: bool) -> None:
        self.machines[name] = machine(name, obstacle=None if is_up else "is draining")

    @invariant()
    def at_most_one_live_spawn_stands_for_a_job(self) -> None:
        jobs = self._live_jobs()
        assert len(jobs) == len(set(jobs))
        assert not set(jobs) & (set(self.waiting) | self.over)

    def teardown(self) -> None:
        """Once everything held is gone and every machine is up, whatever can be served is."""
        self.rows.clear()
        self.machines = {name: machine(name) for name in MACHINES}
        self.cluster = replace(self.cluster, global_max_agents=10_000)
        for _ in range(len(self.waiting) + 1):
            self.admit()
            self.rows.clear()
        moment = self._moment()
        assert not any(
            isinstance(each, Admit) for each in decide(list(self.waiting.values()), moment)
        )

    def _moment(self) -> Situation:
        return situation(self.cluster, machines=list(self.machines.values()), holding=self._held())

    def _held(self) -> list[Held]:
        return [
            Held(each.scaler, each.machine, each.pool, 1, each.cpu_millis, each.memory_bytes)
            for each in self.rows.values()
        ]

    def _live_jobs(self) -> list[str]:
        return [each.job for each in self.rows.values() if each.state not in ENDING]

    def _reserve(self, each: Admit) -> int:
        number = next(self.numbers)
        need = each.shape.requests
        self.rows[number] = _Spawn(
            self.waiting.pop(each.request.job_id).job_id,
            each.scaler.name,
            each.machine_id,
            each.scaler.machine_pool if each.machine_id is not None else None,
            need.cpu_millis,
            need.memory_bytes,
        )
        return number

    def _bereave(self, job: str, *, succeeded: bool) -> None:
        if job not in self.over and not succeeded:
            self.waiting[job] = waiting("any", job=job)
        else:
            self.over.add(job)

    def _assert_caps_hold_for(self, each: Admit) -> None:
        rows, name, place = list(self.rows.values()), each.scaler.name, each.machine_id
        assert len(rows) <= self.cluster.global_max_agents
        mine = [row for row in rows if (row.scaler, row.machine) == (name, place)]
        assert len(mine) <= each.scaler.max_agents
        assert _processors(mine) <= _most(each.scaler.resource_cap)
        if each.scaler.machine_pool is not None and place is not None:
            pool = self.cluster.pool(each.scaler.machine_pool)
            assert pool is not None
            here = [row for row in rows if (row.pool, row.machine) == (pool.name, place)]
            assert _processors(here) <= _most(pool.cap)


def _processors(rows: list[_Spawn]) -> int:
    return sum(row.cpu_millis for row in rows)


def _most(allowed: Cap) -> float:
    return float("inf") if allowed.cpu_millis is None else allowed.cpu_millis


TestAdmissionOverTime = AdmissionOverTime.TestCase
TestAdmissionOverTime.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
