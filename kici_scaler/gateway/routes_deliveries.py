"""Deliveries: operators look at them and hurry them, the dispatcher's router takes its own."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from kici_scaler.domain.delivery import DeliveryState
from kici_scaler.domain.provision_events import source_of
from kici_scaler.gateway.access import AsDispatcher, AsOperator
from kici_scaler.gateway.models_deliveries import AcknowledgeAnswer, DeliveryList, DeliveryView
from kici_scaler.gateway.wiring import TheGateway
from kici_scaler.sealing import Envelope, open_envelope
from kici_scaler.service import deliveries, emissions
from kici_scaler.service import router as routing

router = APIRouter(prefix="/v1/deliveries", tags=["deliveries"])
router_of_events = APIRouter(prefix="/v1/deliveries", tags=["deliveries"])

DeliveryId = Annotated[str, Path(min_length=1, max_length=64)]


@router.get("")
async def listed(
    gateway: TheGateway,
    _: AsOperator,
    agent: str | None = None,
    scaler: str | None = None,
    state: Annotated[list[DeliveryState] | None, Query()] = None,
    dead: Annotated[bool, Query(description="only what could not be delivered")] = False,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> DeliveryList:
    """Events to provisioning targets, newest first."""
    rows = await gateway.threads.http(
        deliveries.listed,
        gateway.runtime,
        agent_id=agent,
        scaler=scaler,
        states=state,
        only_dead=dead,
        limit=limit,
    )
    return DeliveryList(deliveries=[DeliveryView.of(row) for row in rows])


@router.get("/{delivery_id}")
async def one(delivery_id: DeliveryId, gateway: TheGateway, _: AsOperator) -> DeliveryView:
    """One delivery."""
    found = await gateway.threads.http(deliveries.one, gateway.runtime, delivery_id)
    return DeliveryView.of(found)


@router.post("/{delivery_id}/retry")
async def retry(delivery_id: DeliveryId, gateway: TheGateway, caller: AsOperator) -> DeliveryView:
    """Try a pending delivery at once. Asking again is safe."""
    found = await gateway.threads.http(
        deliveries.retry, gateway.runtime, delivery_id, actor=caller.actor
    )
    return DeliveryView.of(found)


@router_of_events.get("/{delivery_id}/event")
async def event(delivery_id: DeliveryId, gateway: TheGateway, _: AsDispatcher) -> dict[str, Any]:
    """The CloudEvent that a router was told of, with its claim code; 409 once it is over."""
    row = await gateway.threads.http(routing.fetch, gateway.runtime, delivery_id)
    code = None
    if row.provision is not None:
        envelope = Envelope.from_json(row.provision.sealed_code)
        code = (await asyncio.to_thread(open_envelope, gateway.keys, envelope)).decode()
    return emissions.event_of(source_of(gateway.installation_id), row, code=code)


@router_of_events.post("/{delivery_id}/acknowledge")
async def acknowledge(
    delivery_id: DeliveryId, gateway: TheGateway, _: AsDispatcher
) -> AcknowledgeAnswer:
    """Say that the router has the event, so that it is not told again."""
    state = await gateway.threads.http(routing.acknowledge, gateway.runtime, delivery_id)
    return AcknowledgeAnswer(delivery_id=delivery_id, state=state)
