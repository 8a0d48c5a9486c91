"""HTTP connections that end when the head of a request does not come in time.

The server itself waits for ever, and each connection that is waited for costs it a descriptor.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS: Final = 10.0
"""From the start of a connection, or of a further request on it, to the end of the head."""


class TimedHeads(H11Protocol):
    """One connection, until it becomes a WebSocket or closes."""

    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream
        """Wait for the first request from now on."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Whatever comes while nothing is answered belongs to the head of a request."""
        if not self._is_answering() and self._overdue is None:
            self._expect_head()
        super().data_received(data)
        if self._is_answering() or self.transport.get_protocol() is not self:
            self._expect_nothing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._expect_nothing()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._overdue = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _expect_nothing(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _give_up(self) -> None:
        self._overdue = None
        self.transport.close()
