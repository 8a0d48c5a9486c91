"""How routes get at the process they run in."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.life import Life


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


def _life(request: Request) -> Life:
    life: Life = request.app.state.life
    return life


TheGateway = Annotated[Gateway, Depends(_gateway)]
"""The gateway that serves the request."""
ItsLife = Annotated[Life, Depends(_life)]
"""The life of that gateway."""
