"""Where an agent in a container finds its gateway."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from threading import Thread
from urllib.parse import urlsplit

from workers.contract import Deadline
from workers.network.access import host_of, is_ipv4

LOOKUP_SECONDS = 3.0
"""How long a name service may take; without an answer the gateway's name opens nothing."""

_LOOPBACK = ("localhost", "::1")


def seen_from_inside(url: str, gateway: str) -> str:
    """The URL for an agent on the bridge whose host has the address `gateway`.

    A loopback address means the container itself in there, never the host that was meant.
    """
    host = host_of(url)
    if host is None or not (host in _LOOPBACK or host.startswith("127.")):
        return url
    parts = urlsplit(url)
    port = "" if parts.port is None else f":{parts.port}"
    return parts._replace(netloc=f"{gateway}{port}").geturl()


def addresses_of(url: str, options: Mapping[str, object], deadline: Deadline) -> tuple[str, ...]:
    """The IPv4 addresses of a URL's host, as containers of a scaler with these options see it.

    `extraHosts` comes first, then the name service of this machine; nothing when neither knows.
    """
    host = host_of(url)
    if host is None:
        return ()
    if is_ipv4(host):
        return (host,)
    known = _extra_hosts(options)
    return (known[host],) if host in known else _looked_up(host, deadline.within(LOOKUP_SECONDS))


def _extra_hosts(options: Mapping[str, object]) -> dict[str, str]:
    written = options.get("extraHosts")
    listed = written if isinstance(written, list | tuple) else ()
    pairs = (str(each).partition(":") for each in listed)
    return {name: address for name, _, address in pairs if is_ipv4(address)}


def _looked_up(host: str, deadline: Deadline) -> tuple[str, ...]:
    """Ask the name service, in a thread of its own since the question has no time limit."""
    answers: SimpleQueue[tuple[str, ...]] = SimpleQueue()
    Thread(target=lambda: answers.put(_ask(host)), daemon=True).start()
    try:
        return answers.get(timeout=max(0.01, deadline.remaining))
    except Empty:
        return ()


def _ask(host: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(host, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(sorted({str(each[4][0]) for each in found}))
