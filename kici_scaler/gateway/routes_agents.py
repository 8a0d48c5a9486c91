"""The operator's side: agents listed, looked at, torn down."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.gateway.access import AsOperator
from kici_scaler.gateway.models_agents import (
    AgentDetail,
    AgentList,
    AgentView,
    DestroyAnswer,
    OutcomeView,
    StaticAgentView,
)
from kici_scaler.gateway.wiring import TheGateway
from kici_scaler.service import operate

router = APIRouter(prefix="/v1/agents", tags=["agents"])

AgentId = Annotated[str, Path(min_length=1, max_length=256)]


@router.get("")
async def listed(
    gateway: TheGateway,
    _: AsOperator,
    scaler: str | None = None,
    state: Annotated[list[SpawnState] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 500,
    gone: Annotated[int, Query(ge=0, le=1_000, description="how many ended ones too")] = 0,
) -> AgentList:
    """Live agents, oldest first; with `gone`, the last ended ones as well.

    Those that no scaler made come too, unless only some scaler or state is asked for.
    """
    live = await gateway.threads.http(
        operate.listed, gateway.runtime, scaler=scaler, states=state, limit=limit
    )
    ended = await gateway.threads.http(operate.gone, gateway.runtime, limit=gone) if gone else []
    narrowed = scaler is not None or state is not None
    static = [] if narrowed else await gateway.threads.http(operate.static, gateway.runtime)
    return AgentList(
        agents=[AgentView.of(row) for row in live],
        gone=[OutcomeView.of(row) for row in ended],
        static=[StaticAgentView.of(row) for row in static],
    )


@router.get("/{agent_id}")
async def one(agent_id: AgentId, gateway: TheGateway, _: AsOperator) -> AgentDetail:
    """One agent with the timing of its states, its events and its outcome."""
    return AgentDetail.of(await gateway.threads.http(operate.story, gateway.runtime, agent_id))


@router.post("/{agent_id}/destroy")
async def destroy(agent_id: AgentId, gateway: TheGateway, caller: AsOperator) -> DestroyAnswer:
    """Tear an agent down; a job it runs fails with that cause. Asking again is safe."""
    state = await gateway.threads.http(
        operate.destroy, gateway.runtime, agent_id, actor=caller.actor
    )
    return DestroyAnswer(agent_id=agent_id, state=state)
