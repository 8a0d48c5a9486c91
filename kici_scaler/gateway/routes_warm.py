"""Warm pools, and the agents that wait for a job."""

from __future__ import annotations

from fastapi import APIRouter

from kici_scaler.gateway.access import AsDispatcher
from kici_scaler.gateway.models_warm import PrespawnedView, ServesView, WarmView
from kici_scaler.gateway.routes_agents import AgentId
from kici_scaler.gateway.wanted import WantedJob
from kici_scaler.gateway.wiring import TheGateway
from kici_scaler.service import warm_status

router = APIRouter(prefix="/v1", tags=["warm pools"])


@router.get("/warm")
async def pools(gateway: TheGateway, _: AsDispatcher) -> WarmView:
    """Every warm pool: its target, its agents, hits and misses."""
    return WarmView.of(await gateway.threads.http(warm_status.read, gateway.runtime))


@router.get("/agents/{agent_id}/prespawned")
async def is_prespawned(agent_id: AgentId, gateway: TheGateway, _: AsDispatcher) -> PrespawnedView:
    """Whether an agent was started ahead of demand and still has no job."""
    found = await gateway.threads.http(warm_status.prespawned, gateway.runtime, agent_id)
    return PrespawnedView(agent_id=agent_id, prespawned=found)


@router.get("/agents/{agent_id}/can-serve")
async def can_serve(
    agent_id: AgentId, gateway: TheGateway, _: AsDispatcher, wanted: WantedJob
) -> ServesView:
    """Whether an agent that waits for a job may be given such a one."""
    found = await gateway.threads.http(warm_status.obstacle, gateway.runtime, agent_id, wanted)
    return ServesView(agent_id=agent_id, serves=found is None, obstacle=found)
