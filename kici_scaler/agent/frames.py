"""Messages between the agent and its keeper: a length, then JSON, over a socket pair."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_LENGTH = struct.Struct("!I")
READ_SIZE = 1 << 16


def pack(message: Mapping[str, Any]) -> bytes:
    """The bytes of one message."""
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body


def send(
    sock: socket.socket, message: Mapping[str, Any], descriptors: tuple[int, ...] = ()
) -> None:
    """Send one message, with open files beside it.

    Raises:
        OSError: the other side is gone.
    """
    data = pack(message)
    if descriptors:
        sent = socket.send_fds(sock, [data], list(descriptors))
        data = data[sent:]
    sock.sendall(data)


@dataclass
class Reader:
    """Cuts a stream of bytes into messages."""

    _held: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are complete now that `data` came."""
        self._held += data
        while len(self._held) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held)
            end = _LENGTH.size + length
            if len(self._held) < end:
                return
            body = bytes(self._held[_LENGTH.size : end])
            del self._held[:end]
            yield json.loads(body)
