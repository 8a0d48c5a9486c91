"""One connection: resolved, connected, its key judged, logged in, each within its time."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import paramiko

from workers.bare_metal.ssh import host_keys
from workers.bare_metal.ssh.target import Target
from workers.contract import Deadline
from workers.errors import Unreachable

_TCP_USER_TIMEOUT = 18
"""Linux's socket option; the module has a name for it only where it was built on Linux."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds each phase may take at most; a call's own deadline may end it sooner."""

    connect: float = 10.0
    banner: float = 15.0
    authenticate: float = 15.0
    channel: float = 10.0
    keepalive: float = 10.0
    """How often something is said on a silent connection."""
    silence: float = 30.0
    """How long what was said may stay unacknowledged before the connection counts as lost."""


class Connection:
    """A logged-in connection, and the one to its jump host."""

    def __init__(self, client: paramiko.SSHClient, through: Connection | None) -> None:
        self._client = client
        self._through = through
        transport = client.get_transport()
        assert transport is not None, "a connected client has a transport"
        self.transport = transport

    @property
    def is_open(self) -> bool:
        """Whether it was not seen to end."""
        return self.transport.is_active()

    def close(self) -> None:
        """End it, and the way to it."""
        self._client.close()
        if self._through is not None:
            self._through.close()


logging.getLogger("paramiko").setLevel(logging.CRITICAL)
# It logs each failure with a traceback; what matters of one is in the error.


def dial(target: Target, deadline: Deadline, timeouts: Timeouts) -> Connection:
    """A connection to the machine.

    Raises:
        Unreachable: there is none, and why; `HostKeyRefused` when its key is not trusted.
    """
    through = None if target.jump is None else _jump(target.jump, deadline, timeouts)
    try:
        with _told(target):
            sock = _socket(target, deadline, timeouts, through)
            return Connection(_client(target, sock, deadline, timeouts), through)
    except BaseException:
        if through is not None:
            through.close()
        raise


def shown_key(target: Target, deadline: Deadline, timeouts: Timeouts) -> paramiko.PKey:
    """The host key that answers at that address; it is trusted for nothing.

    Raises:
        Unreachable: none answers.
    """
    with _told(target):
        transport = paramiko.Transport(_socket(target, deadline, timeouts, None))
        try:
            transport.banner_timeout = timeouts.banner
            kinds = transport.get_security_options()
            preferred = "ssh-ed25519"
            kinds.key_types = (preferred, *(e for e in kinds.key_types if e != preferred))
            transport.start_client(timeout=max(0.1, deadline.remaining))
            return transport.get_remote_server_key()
        finally:
            transport.close()


def _jump(target: Target, deadline: Deadline, timeouts: Timeouts) -> Connection:
    try:
        return dial(target, deadline, timeouts)
    except Unreachable as error:
        error.args = (f"jump host: {error}",)
        raise


def _socket(
    target: Target, deadline: Deadline, timeouts: Timeouts, through: Connection | None
) -> Any:
    seconds = deadline.within(timeouts.connect).remaining
    if through is not None:
        # paramiko takes a channel for a socket; its types know of that only in part.
        here, there = ("127.0.0.1", 0), (target.address, target.port)
        return through.transport.open_channel("direct-tcpip", there, here, timeout=seconds or 0.1)
    sock = socket.create_connection((target.address, target.port), timeout=seconds or 0.1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, int(timeouts.silence * 1000))
    return sock


def _client(
    target: Target, sock: Any, deadline: Deadline, timeouts: Timeouts
) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(host_keys.RefuseUnknown(target))
    known = client.get_host_keys()
    for name, keys in host_keys.trusted_keys(target).items():
        for kind, key in keys.items():
            known.add(name, kind, key)
    left = deadline.remaining
    try:
        client.connect(
            target.address,
            port=target.port,
            username=target.login,
            key_filename=target.key_file,
            sock=sock,
            timeout=max(0.1, min(left, timeouts.banner + timeouts.authenticate)),
            banner_timeout=max(0.1, min(left, timeouts.banner)),
            auth_timeout=max(0.1, min(left, timeouts.authenticate)),
            channel_timeout=timeouts.channel,
            allow_agent=target.key_file is None,
            look_for_keys=False,
        )
    except BaseException:
        client.close()
        sock.close()
        raise
    transport = client.get_transport()
    if transport is not None:
        transport.set_keepalive(max(1, int(timeouts.keepalive)))
    return client


@contextmanager
def _told(target: Target) -> Iterator[None]:
    """Turns what goes wrong on the way into one kind of error that says what to do."""
    place = target.place
    try:
        yield
    except Unreachable:
        raise
    except paramiko.BadHostKeyException as error:
        raise host_keys.different(target, error.key) from error
    except paramiko.PasswordRequiredException as error:
        raise Unreachable(
            f"the key `{target.key_file}` for `{place}` is locked by a passphrase",
            hint="use a key without one, or load it into the worker's SSH agent",
        ) from error
    except paramiko.AuthenticationException as error:
        raise Unreachable(
            f"`{place}` does not let user `{target.login}` in: {error}",
            hint="put the public key into that user's authorized_keys on the machine",
        ) from error
    except FileNotFoundError as error:
        raise Unreachable(
            f"the key for `{place}` cannot be read: {error}", hint="correct `keyFile`"
        ) from error
    except socket.gaierror as error:
        raise Unreachable(
            f"the name `{target.address}` cannot be resolved: {error.strerror}",
            hint="correct `address`",
        ) from error
    except TimeoutError as error:
        raise Unreachable(f"`{place}` did not answer in time") from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise Unreachable(f"no connection to `{place}`: {error or type(error).__name__}") from error
