"""TCP ports: is one free, which one is, and which ones an installation had before."""

from __future__ import annotations

import errno
import json
import random
import socket
from pathlib import Path
from typing import Final

import psutil

from kici_scaler.embedded.errors import PortInUse

LOOPBACK: Final = "127.0.0.1"
QUIET_PORTS: Final = range(20_000, 32_768)
"""Below Linux's default range of ports for outgoing connections, which starts at 32,768."""
TRIES: Final = 50


def reached_at(host: str) -> str:
    """The address at which this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": LOOPBACK, "::": "[::1]"}.get(host, host)


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def free_port(host: str = LOOPBACK) -> int:
    """A port that nothing listens on at this moment, outside the range of outgoing connections.

    A port of that range could be taken by anyone's connection before the server listens.
    """
    for port in random.sample(QUIET_PORTS, TRIES):
        if is_free(port, host):
            return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        last_resort: int = probe.getsockname()[1]
        return last_resort


class PortBook:
    """Ports by name, remembered in a file, so that a restart changes no address."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports = _remembered(path)

    def take(self, name: str, host: str = LOOPBACK) -> int:
        """The port of the last start when it is free, else another free one."""
        port = self._ports.get(name, 0)
        if not (port and is_free(port, host)):
            port = free_port(host)
        self._remember(name, port)
        return port

    def take_exactly(self, name: str, port: int, host: str, option: str) -> int:
        """That port and no other.

        Args:
            option: what the operator changes to have another port, for the message.

        Raises:
            PortInUse: somebody listens there.
        """
        if not is_free(port, host):
            raise PortInUse(
                f"port {port} on {host}, meant for {name}, is in use{_listener_on(port)}",
                hint=f"Stop that program, or choose another port with {option} (0: any free one).",
            )
        self._remember(name, port)
        return port

    def _remember(self, name: str, port: int) -> None:
        self._ports[name] = port
        self._path.write_text(json.dumps(self._ports, indent=2) + "\n")


def _remembered(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {name: port for name, port in found.items() if isinstance(port, int)}


def _listener_on(port: int) -> str:
    """Who listens there, as far as this account may know."""
    try:
        sockets = psutil.net_connections(kind="tcp")
        pids = [
            each.pid
            for each in sockets
            if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port
        ]
        return next((f" by {psutil.Process(pid).name()} (pid {pid})" for pid in pids if pid), "")
    except psutil.Error:
        return ""
