"""The simulation: events in the order of their times, a decision after each moment.

As in production a decision follows each request at once, and freed capacity after a moment
in which more may come. It is made again while it serves somebody and more wait than it
looked at; then warm pools are filled, reaped and made to yield.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from kici_scaler.domain.admission import Admit, Bind, Deciding, Refuse, Situation
from kici_scaler.domain.machines import capacities
from kici_scaler.domain.resources import Shape
from kici_scaler.domain.scalers import Cluster, LabelSet, Scaler
from kici_scaler.domain.spawn import ENDING, SpawnState
from kici_scaler.domain.warm import muster
from kici_scaler.domain.warm_plan import Plan, plan
from kici_scaler.domain.warm_yield import Yielded, ledger_once_ended, yields
from kici_scaler.domain.windows import Windows
from kici_scaler.service import warm_pools
from kici_scaler.service.revisions import Revision
from kici_scaler.service.simulate.agents import Agent, Agents
from kici_scaler.service.simulate.assumed import Assumptions, machines_of, table_of
from kici_scaler.service.simulate.course import Course, Sample
from kici_scaler.service.simulate.demand import Demand, Fate, Queue
from kici_scaler.service.simulate.trace import Job

DEBOUNCE_SECONDS = 0.25
"""Freed capacity is collected for so long, as hints are."""
TICK_SECONDS = 60.0
"""How often warm pools are looked at when nothing happens."""
REVISION = -1
"""No stored configuration has this id."""


def simulate(cluster: Cluster, jobs: Sequence[Job], assumed: Assumptions) -> Course:
    """Serve these jobs (in the order of their times) with that configuration."""
    return _Simulation(cluster, assumed).run(jobs)


class _Simulation:
    def __init__(self, cluster: Cluster, assumed: Assumptions) -> None:
        self._cluster, self._assumed = cluster, assumed
        self._revision = Revision(REVISION, cluster)
        self._machines = machines_of(cluster, assumed)
        self._table = table_of(cluster, self._machines)
        self._ageing = timedelta(seconds=Windows().ageing_seconds)
        self._keeps_pools = warm_pools.keeps_any(cluster)
        self._agents, self._demand = Agents(self._machines), Demand()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._ids = itertools.count(), itertools.count(1)
        self._pending = 0
        self._quiet_ticks = 0
        self._stirred = self._will_stir = False
        self._starting: dict[tuple[str, str | None], int] = {}
        self._reserved: dict[tuple[str, str | None], deque[Agent]] = {}
        self._now = 0.0
        self._course = Course(agents=self._agents, demand=self._demand)

    def run(self, jobs: Sequence[Job]) -> Course:
        """Until every job is over, or nothing can happen any more."""
        self._now = jobs[0].at - self._assumed.spawn_seconds - self._assumed.boot_seconds - 1.0
        self._demand.pass_time(self._now)
        self._at(self._now, self._stir)
        for job in jobs:
            self._at(job.at, lambda job=job: self._ask(job))  # type: ignore[misc]  # bound now
        if self._keeps_pools:
            self._tick()
        while self._events:
            self._moment()
        for agent in self._agents.live.values():
            self._agents.stops_idling(agent, self._now)
        list(self._demand.left())
        return self._course

    def _moment(self) -> None:
        now = self._events[0][0]
        self._demand.pass_time(now)
        self._now = now
        while self._events and self._events[0][0] == now:
            heapq.heappop(self._events)[2]()
        if self._stirred:
            self._stirred = False
            self._decide()
        self._sample()

    def _at(self, when: float, what: Callable[[], None]) -> None:
        def do() -> None:
            self._pending -= 1
            what()

        self._pending += 1
        heapq.heappush(self._events, (when, next(self._order), do))

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        self._at(self._now + seconds, what)

    def _stir(self) -> None:
        self._stirred, self._will_stir = True, False

    def _stir_soon(self) -> None:
        if not self._will_stir:
            self._will_stir = True
            self._after(DEBOUNCE_SECONDS, self._stir)

    def _tick(self) -> None:
        """Goes on while anything else may happen, and as long as idle agents may make room."""
        self._stirred = True
        self._quiet_ticks = 0 if self._pending else self._quiet_ticks + 1
        most = 2 + max(
            each.warm_pool.idle_timeout_seconds // TICK_SECONDS
            for scaler in self._cluster.scalers
            for each in scaler.label_sets
            if each.warm_pool is not None
        )
        if self._pending or (self._demand.count and self._quiet_ticks < most):
            heapq.heappush(self._events, (self._now + TICK_SECONDS, next(self._order), self._tick))

    def _ask(self, job: Job) -> None:
        self._course.fates.append(self._demand.add(job))
        self._stirred = True

    def _situation(self) -> Situation:
        return Situation(
            table=self._table,
            held=self._agents.held(),
            machines=self._machines,
            now=datetime.fromtimestamp(self._now, UTC),
            ageing=self._ageing,
            ready=self._agents.ready() if self._keeps_pools else (),
        )

    def _decide(self) -> None:
        while True:
            situation = self._situation()
            deciding, heads = Deciding(situation), self._demand.heads()
            decisions = deciding.decide([each.waiting for each in heads])
            served: list[Fate] = []
            admits: list[Admit] = []
            refusals: dict[Queue, Refuse] = {}
            for fate, decision in zip(heads, decisions, strict=True):
                if isinstance(decision, Refuse):
                    refusals[fate.queue] = decision
                    continue
                served.append(fate)
                if isinstance(decision, Admit):
                    admits.append(decision)
                    self._reserve(
                        decision.scaler, decision.label_set, decision.machine_id,
                        decision.shape, fate=fate,
                    )  # fmt: skip
                elif isinstance(decision, Bind):
                    self._give(self._agents.live[decision.agent.agent_id], fate)
            was_cut = self._demand.is_cut
            self._demand.served(served)
            for queue, refusal in refusals.items():
                self._demand.refused(queue, refusal)
            if not (served and was_cut):
                break
        if self._keeps_pools:
            self._tend_pools(situation, deciding, admits)

    def _tend_pools(
        self, situation: Situation, deciding: Deciding, admits: Sequence[Admit]
    ) -> None:
        pools = warm_pools.shaped(self._revision, situation, {})
        bound = {each.id for each in self._agents.live.values() if not each.is_unused}
        members = [each for each in self._agents.members(self._now) if each.agent_id not in bound]
        found = muster(pools, members)
        unmet = [each for each in deciding.unmet() if each.rooms is not None]
        yielded: Iterable[Yielded] = ()
        if unmet and members:
            able = [each for roster in found.rosters for each in (*roster.ready, *roster.in_flight)]
            later = ledger_once_ended(
                self._cluster, situation.held, admits, self._agents.ending(),
                capacities(self._cluster, self._machines),
            )  # fmt: skip
            yielded = yields(unmet, able, later)
        self._carry_out(plan(found, deciding, yielded))

    def _carry_out(self, made: Plan) -> None:
        for fill in made.fills:
            route = fill.pool.route
            assert route is not None, "only a pool with a route is filled"
            self._reserve(
                fill.pool.scaler, fill.pool.label_set, fill.machine_id, route.shape,
                digest=fill.pool.digest,
            )  # fmt: skip
        for end in made.ends:
            self._end(self._agents.live[end.member.agent_id])
        if made.leaves_more:
            self._at(self._now, self._stir)

    def _reserve(
        self,
        scaler: Scaler,
        label_set: LabelSet,
        machine_id: str | None,
        shape: Shape,
        *,
        fate: Fate | None = None,
        digest: str | None = None,
    ) -> None:
        agent = Agent(
            f"agent-{next(self._ids):07}", scaler, label_set, machine_id, shape, self._now,
            fate=fate, warm=fate is None, digest=digest,
        )  # fmt: skip
        self._agents.add(agent)
        if fate is not None:
            fate.scaler = scaler.name
        key = scaler.name, machine_id
        self._reserved.setdefault(key, deque()).append(agent)
        self._start_next(key, scaler.max_concurrent_spawns)

    def _start_next(self, key: tuple[str, str | None], slots: int) -> None:
        queue = self._reserved[key]
        while queue and self._starting.get(key, 0) < slots:
            agent = queue.popleft()
            if agent.state is SpawnState.RESERVED and agent.gone is None:
                agent.state = SpawnState.SPAWNING
                self._starting[key] = self._starting.get(key, 0) + 1
                self._after(
                    self._assumed.spawn_seconds,
                    lambda agent=agent: self._spawned(agent),  # type: ignore[misc]  # bound now
                )

    def _spawned(self, agent: Agent) -> None:
        key = agent.scaler.name, agent.machine_id
        self._starting[key] -= 1
        if agent.state is SpawnState.SPAWNING:
            agent.state = SpawnState.BOOTING
            self._after(self._assumed.boot_seconds, lambda: self._registered(agent))
        self._start_next(key, agent.scaler.max_concurrent_spawns)

    def _registered(self, agent: Agent) -> None:
        if agent.state is not SpawnState.BOOTING:
            return
        agent.state, agent.idle_since = SpawnState.IDLE, self._now
        if agent.fate is not None:
            self._begin(agent, agent.fate)
        else:
            self._stirred = True

    def _give(self, agent: Agent, fate: Fate) -> None:
        agent.fate, fate.was_hit, fate.scaler = fate, True, agent.scaler.name
        self._begin(agent, fate)

    def _begin(self, agent: Agent, fate: Fate) -> None:
        self._agents.stops_idling(agent, self._now)
        agent.state, fate.started = SpawnState.BUSY, self._now
        self._after(fate.job.seconds, lambda: self._done(agent, fate))

    def _done(self, agent: Agent, fate: Fate) -> None:
        fate.ended = self._now
        self._end(agent)

    def _end(self, agent: Agent) -> None:
        if agent.state in ENDING:
            return
        self._agents.stops_idling(agent, self._now)
        if agent.state is SpawnState.RESERVED:
            self._gone(agent)
            return
        agent.state = SpawnState.DESTROYING
        self._after(self._assumed.end_seconds, lambda: self._gone(agent))

    def _gone(self, agent: Agent) -> None:
        self._agents.remove(agent, self._now)
        self._stir_soon()

    def _sample(self) -> None:
        count, cpus, memory = self._agents.totals()
        idle = 0
        if self._keeps_pools:
            idle = sum(each.state is SpawnState.IDLE for each in self._agents.live.values())
        self._course.samples.append(
            Sample(self._now, self._demand.count, count, idle, cpus, memory)
        )
        peaks = self._course.peaks
        for name, number in self._agents.by_scaler().items():
            peaks[name] = max(peaks.get(name, 0), number)
