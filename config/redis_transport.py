"""Celery's Redis transport, with a client for each channel instead of one for each command.

To make a client costs more than what it is made for: the library makes one for every message
that is sent, those about tasks included, which is a fifth of what a worker's main process does.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as plain


class Channel(plain.Channel):
    """A channel whose commands share a client; each takes a connection of its pool for itself."""

    _kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        """A client on the channel's pool: that of before, unless the pool is another by now."""
        create: Any = super()._create_client  # type: ignore[misc]  # its types leave it out
        if asynchronous:
            return create(asynchronous=True)
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = create()
        return self._kept


class Transport(plain.Transport):
    """The transport of those channels."""

    Channel = Channel


def keep_clients() -> None:
    """Have `redis://` and `rediss://` mean this transport in this process."""
    name = f"{__name__}:{Transport.__name__}"
    TRANSPORT_ALIASES.update({"redis": name, "rediss": name})
