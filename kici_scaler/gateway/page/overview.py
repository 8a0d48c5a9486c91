"""Everything that the status page shows, read for all who look at it together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self

from kici_scaler.domain.diagnosis import Health
from kici_scaler.domain.diagnosis import Row as Finding
from kici_scaler.domain.request import RequestState
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.domain.timeline import phases
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.models import RequestView
from kici_scaler.gateway.models_agents import AgentDetail, AgentView, OutcomeView, StaticAgentView
from kici_scaler.gateway.models_deliveries import DeliveryView
from kici_scaler.gateway.models_status import CapacityView, ScalerView, StatusView
from kici_scaler.gateway.models_warm import PoolView, WarmView
from kici_scaler.gateway.page.pictures import Bar, Timeline, bar, strip, timeline
from kici_scaler.gateway.routes_requests import recent
from kici_scaler.service import deliveries, diagnose, operate, status, warm_status
from kici_scaler.service.runtime import Runtime

MOST_ROWS: Final = 100
"""Of each list; the command line shows the rest."""
FEW_ROWS: Final = 20
BELIEVED_SECONDS: Final = 1.0
"""Whoever looks within this time sees the same, so many lookers cost as much as one."""

KINDS: Final[Mapping[str, tuple[SpawnState, ...]]] = {
    "busy": (SpawnState.BUSY,),
    "idle": (SpawnState.IDLE,),
    "starting": (SpawnState.RESERVED, SpawnState.SPAWNING, SpawnState.BOOTING),
    "ending": (SpawnState.DESTROYING,),
    "quarantined": (SpawnState.QUARANTINED,),
}
"""How states are told apart in a bar."""


@dataclass(frozen=True, slots=True)
class ScalerLine:
    """A scaler with its bars; `total` is the most agents that it may have now."""

    view: ScalerView
    total: int
    agents: Bar
    cpus: Bar | None
    memory: Bar | None


@dataclass(frozen=True, slots=True)
class AgentLine:
    """A live agent and its life so far."""

    view: AgentView
    life: Bar


@dataclass(frozen=True, slots=True)
class FailureLine:
    """An agent that failed and the life it had."""

    view: OutcomeView
    life: Bar


@dataclass(frozen=True, slots=True)
class Overview:
    """The cluster at one moment; lists are cut to their first rows."""

    status: StatusView
    cluster: Bar
    scalers: list[ScalerLine]
    pools: list[PoolView]
    waiting: list[RequestView]
    agents: list[AgentLine]
    static: list[StaticAgentView]
    failures: list[FailureLine]
    deliveries: list[DeliveryView]
    findings: list[Finding]
    """What the diagnosis does not find well."""

    @property
    def waiting_count(self) -> int:
        """All that wait, also those that are not listed."""
        return self.status.requests.get(RequestState.WAITING.value, 0)


@dataclass(frozen=True, slots=True)
class AgentPage:
    """One agent in full."""

    detail: AgentDetail
    picture: Timeline

    @classmethod
    def of(cls, detail: AgentDetail, now: datetime) -> Self:
        """From what was read; what its row says wins over what was written of it before."""
        timings: dict[str, object] = dict(detail.outcome.timings) if detail.outcome else {}
        timings |= detail.agent.timings if detail.agent else {}
        return cls(detail, timeline(phases(timings, now)))


@dataclass(slots=True)
class Lookout:
    """Reads the overview once for all who ask within a moment."""

    gateway: Gateway
    _task: asyncio.Task[Overview] | None = None
    _at: float = field(default=0.0)

    async def overview(self) -> Overview:
        """The cluster as it was at most a second ago.

        Raises:
            DatabaseUnreachable: it cannot be told.
        """
        now = asyncio.get_running_loop().time()
        task = self._task
        if task is None or (task.done() and (now - self._at > BELIEVED_SECONDS or _failed(task))):
            self._at = now
            task = self._task = asyncio.create_task(
                self.gateway.threads.http(read, self.gateway.runtime)
            )
        return await asyncio.shield(task)


def _failed(task: asyncio.Task[Overview]) -> bool:
    return task.cancelled() or task.exception() is not None


def read(runtime: Runtime) -> Overview:
    """The cluster as it is now.

    Raises:
        DatabaseUnreachable: it cannot be told.
    """
    found = status.read(runtime)
    return overview_of(
        StatusView.of(found),
        totals={row.name: row.total for row in CapacityView.of(found).scalers},
        pools=WarmView.of(warm_status.read(runtime)).pools,
        waiting=recent(runtime, [RequestState.WAITING], MOST_ROWS),
        agents=[AgentView.of(row) for row in operate.listed(runtime, limit=MOST_ROWS)],
        static=[StaticAgentView.of(row) for row in operate.static(runtime)[:MOST_ROWS]],
        failures=[OutcomeView.of(row) for row in operate.failed(runtime, limit=FEW_ROWS)],
        deliveries=[DeliveryView.of(row) for row in deliveries.listed(runtime, limit=FEW_ROWS)],
        findings=[row for row in diagnose.diagnosis(runtime) if row.health is not Health.PASS],
    )


def overview_of(
    view: StatusView,
    *,
    totals: Mapping[str, int],
    pools: list[PoolView],
    waiting: list[RequestView],
    agents: Iterable[AgentView],
    static: list[StaticAgentView],
    failures: Iterable[OutcomeView],
    deliveries: list[DeliveryView],
    findings: list[Finding],
) -> Overview:
    """What was read, with what is drawn of it; `totals` is the most agents by scaler."""
    used, states = view.global_active_count, _summed(view.backends)
    return Overview(
        status=view,
        cluster=_agents_bar(states, view.global_max_agents, used),
        scalers=[_scaler_line(each, totals.get(each.name, 0)) for each in view.backends],
        pools=pools,
        waiting=waiting,
        agents=[AgentLine(each, _life(each.timings, view.at)) for each in agents],
        static=static,
        failures=[FailureLine(each, _life(each.timings, view.at)) for each in failures],
        deliveries=deliveries,
        findings=findings,
    )


def agent_page(runtime: Runtime, agent_id: str, now: datetime) -> AgentPage:
    """One agent.

    Raises:
        NotFound: nothing is known of it.
    """
    return AgentPage.of(AgentDetail.of(operate.story(runtime, agent_id)), now)


def _summed(scalers: Iterable[ScalerView]) -> dict[SpawnState, int]:
    total: dict[SpawnState, int] = {}
    for each in scalers:
        for state, n in each.states.items():
            total[state] = total.get(state, 0) + n
    return total


def _agents_bar(states: Mapping[SpawnState, int], total: int, used: int) -> Bar:
    parts = [(kind, sum(states.get(each, 0) for each in of)) for kind, of in KINDS.items()]
    words = ", ".join(f"{n} {kind}" for kind, n in parts if n)
    about = f"{used} of {total} agents" + (f": {words}" if words else "")
    return bar(parts, total, about)


def _scaler_line(view: ScalerView, total: int) -> ScalerLine:
    cap = view.resource_cap
    cpus = memory = None
    if cap is not None and cap.cpus is not None:
        cpus = bar([("held", view.usage.cpus)], cap.cpus,
                   f"{view.usage.cpus:g} of {cap.cpus:g} CPUs")  # fmt: skip
    if cap is not None and cap.mem_bytes is not None:
        share = 100 * view.usage.mem_bytes / cap.mem_bytes
        memory = bar([("held", view.usage.mem_bytes)], cap.mem_bytes, f"{share:.0f} % of memory")
    agents = _agents_bar(view.states, total, view.active_count)
    return ScalerLine(view, total, agents, cpus, memory)


def _life(timings: Mapping[str, datetime], now: datetime) -> Bar:
    found = phases(timings, now)
    return strip(found, ", ".join(f"{each.name} {each.seconds:.1f} s" for each in found))
