"""One connection for one request: to a checked address, by one deadline, watched.

The name is looked up once, and the connection goes to an address that was checked, so a name
that changes its mind in between leads nowhere else. The certificate must be the name's.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore
from httpcore import SOCKET_OPTION

from workers.contract import Deadline
from workers.event.addresses import AddressPolicy, ForbiddenAddress, NotResolved


class Forbidden(httpcore.ConnectError):
    """The name leads to an address that may not be connected to."""


class GuardedNetwork(httpcore.NetworkBackend):
    """Opens connections where the policy allows, and ends everything at the deadline."""

    def __init__(self, policy: AddressPolicy, deadline: Deadline) -> None:
        self._policy = policy
        self._deadline = deadline
        self._network = httpcore.SyncBackend()
        self.has_spoken = False
        """Whether a byte of the request may have reached the other side."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first checked address that takes the connection."""
        problem: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in self._addresses(host, port):
            try:
                stream = self._network.connect_tcp(
                    address, port, self._time(timeout), local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                problem = error
            else:
                return _Stream(stream, self)
        raise problem

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Refused: no target is a socket of this machine."""
        raise httpcore.ConnectError("sockets of this machine are no targets")

    def hurry(self, seconds: float) -> None:
        """End everything within so many seconds, if not sooner."""
        self._deadline = self._deadline.within(seconds)

    def time_for(self, timeout: float | None) -> float:
        """What is left of the deadline, or less if less was asked for.

        Raises:
            httpcore.ReadTimeout: nothing is left.
        """
        if self._deadline.has_passed:
            raise httpcore.ReadTimeout("the time for this try is over")
        return self._time(timeout)

    def _time(self, timeout: float | None) -> float:
        left = max(0.001, self._deadline.remaining)
        return left if timeout is None else min(left, timeout)

    def _addresses(self, host: str, port: int) -> tuple[str, ...]:
        try:
            return self._policy.resolve(host, port, self._time(None))
        except ForbiddenAddress as error:
            raise Forbidden(str(error)) from error
        except NotResolved as error:
            raise httpcore.ConnectError(str(error)) from error


class _Stream(httpcore.NetworkStream):
    """Bytes to and from the target, none of them after the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, network: GuardedNetwork) -> None:
        self._stream = stream
        self._network = network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes."""
        return self._stream.read(max_bytes, self._network.time_for(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes of the request."""
        seconds = self._network.time_for(timeout)
        self._network.has_spoken = self._network.has_spoken or bool(buffer)
        self._stream.write(buffer, seconds)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Agree on keys with the holder of the name's certificate."""
        seconds = self._network.time_for(timeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, seconds), self._network)

    def get_extra_info(self, info: str) -> Any:
        """What the connection below knows."""
        return self._stream.get_extra_info(info)
