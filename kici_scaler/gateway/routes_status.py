"""What the cluster is, what it could take, and what it did."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST

from kici_scaler.gateway import metrics
from kici_scaler.gateway.access import AsDispatcher
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.models import EventList, EventView, SealingKeyView
from kici_scaler.gateway.models_routing import CanServeView
from kici_scaler.gateway.models_status import CapacityView, StatusView
from kici_scaler.gateway.wanted import WantedJob
from kici_scaler.gateway.wiring import TheGateway
from kici_scaler.service import figures, status
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import events
from kici_scaler.store.engine import transaction
from kici_scaler.store.events import EventRow

LONGEST_WAIT_SECONDS = 30
LOOK_SECONDS = 0.5
"""Between two looks for an event that is awaited."""

router = APIRouter(prefix="/v1", tags=["cluster"])
metrics_router = APIRouter(tags=["cluster"])


@metrics_router.get("/metrics", response_class=Response)
async def scrape(gateway: TheGateway, _: AsDispatcher) -> Response:
    """Figures in Prometheus' text format."""
    found = await gateway.threads.http(figures.read, gateway.runtime)
    return Response(metrics.exposition(gateway, found), media_type=CONTENT_TYPE_LATEST)


@router.get("/status")
async def cluster_status(gateway: TheGateway, _: AsDispatcher) -> StatusView:
    """Scalers, machines, gateways and counts, all of one moment."""
    return StatusView.of(await gateway.threads.http(status.read, gateway.runtime))


@router.get("/capacity")
async def capacity(gateway: TheGateway, _: AsDispatcher) -> CapacityView:
    """What each scaler could still take."""
    return CapacityView.of(await gateway.threads.http(status.read, gateway.runtime))


@router.get("/can-serve")
async def can_serve(gateway: TheGateway, _: AsDispatcher, wanted: WantedJob) -> CanServeView:
    """Whether any scaler can ever serve such a job."""
    found = await gateway.threads.http(status.can_serve, gateway.runtime, wanted)
    return CanServeView.of(found)


@router.get("/events")
async def event_list(
    gateway: TheGateway,
    _: AsDispatcher,
    after: Annotated[int, Query(ge=0, lt=1 << 63)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 500,
    wait: Annotated[
        float, Query(ge=0, le=LONGEST_WAIT_SECONDS, description="seconds, until there is one")
    ] = 0,
) -> EventList:
    """Events past `after`, oldest first. Following `nextAfter` misses none."""
    deadline = asyncio.get_running_loop().time() + wait
    while True:
        rows = await gateway.threads.http(_events, gateway.runtime, after, limit)
        if rows or not await _pause(gateway, deadline):
            return EventList(
                events=[EventView.of(row) for row in rows],
                next_after=rows[-1].id if rows else after,
            )


@router.get("/sealing-key")
async def sealing_key(gateway: TheGateway, _: AsDispatcher) -> SealingKeyView:
    """The key that payloads are to be sealed with now."""
    public = gateway.keys.newest.public
    return SealingKeyView(key_id=public.key_id, public_key=public.public_key)


def _events(runtime: Runtime, after: int, limit: int) -> list[EventRow]:
    with transaction(runtime.engine) as connection:
        return events.after(connection, after, limit=limit)


async def _pause(gateway: Gateway, deadline: float) -> bool:
    """Wait a little; False when there is no more time to wait."""
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        return False
    try:
        async with asyncio.timeout(min(LOOK_SECONDS, left)):
            await gateway.stopping.wait()
    except TimeoutError:
        return True
    return False
