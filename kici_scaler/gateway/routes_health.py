"""For load balancers and supervisors; open to all, and they tell little."""

from __future__ import annotations

from fastapi import APIRouter, Response, status

from kici_scaler.gateway.models import Health
from kici_scaler.gateway.wiring import ItsLife

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Health:
    """The process answers."""
    return Health(status="ok")


@router.get("/readyz", responses={503: {"model": Health}})
async def readyz(life: ItsLife, response: Response) -> Health:
    """The database was reached lately and this gateway may adopt agents."""
    if life.is_ready:
        return Health(status="ready")
    response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    return Health(status="not ready")
