"""Whoever opens the agent channel has to say who it is, soon."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from kici_scaler.agent.protocol import CloseCode
from kici_scaler.gateway import introduction
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.introduction import NotWelcome, introduce
from kici_scaler.gateway.link import Event, Link


def test_a_connection_that_says_nothing_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introduction, "REGISTER_SECONDS", 0.02)

    async def nothing() -> Event:
        await asyncio.Event().wait()
        raise AssertionError

    async def unheard(_event: Event) -> None:
        return None

    link = Link(nothing, unheard, "192.0.2.1")
    with pytest.raises(NotWelcome, match="no register within") as end:
        asyncio.run(asyncio.wait_for(introduce(cast("Gateway", None), link), 20))

    assert end.value.code is CloseCode.REFUSED_FOR_NOW
