"""A small world around this machine: private networks, a cloud's metadata, the Internet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.waiting import eventually

PUBLIC = "203.0.113.10"
METADATA = "169.254.169.254"
PRIVATE = ("10.1.2.3", "172.20.0.9", "192.168.7.7")
UPLINK = "198.51.100.1"
"""This machine's own public address."""

PUBLIC6 = "2001:db8:9::10"
HOST6 = "fd30::1"
"""This machine's address on the agents' bridge, once `ipv6_around` gave it one."""

PORTS = (80, 4000)
"""Open on every address outside."""

_OUTSIDE = "outside"
_ROUTER = "198.51.100.2"

_SERVER = """
import socket, sys, threading
def serve(listener):
    while True:
        connection, _ = listener.accept()
        connection.sendall(b"hello")
        connection.close()
both = {"family": socket.AF_INET6, "dualstack_ipv6": True}
listeners = [socket.create_server(("::", int(port)), backlog=64, **both) for port in sys.argv[1:]]
for each in listeners:
    threading.Thread(target=serve, args=(each,)).start()
print("open", flush=True)
"""


@contextmanager
def world() -> Iterator[None]:
    """The world, as a namespace that this machine's default route leads to."""
    with ExitStack() as undo:
        _run("ip", "netns", "add", _OUTSIDE)
        undo.callback(_run, "ip", "netns", "del", _OUTSIDE)
        _run("ip", "link", "add", "uplink0", "type", "veth", "peer", "name", "inside0")
        undo.callback(_run, "ip", "link", "del", "uplink0")
        _run("ip", "link", "set", "inside0", "netns", _OUTSIDE)
        _run("ip", "addr", "add", f"{UPLINK}/24", "dev", "uplink0")
        _run("ip", "link", "set", "uplink0", "up")
        _outside("ip", "link", "set", "lo", "up")
        _outside("ip", "link", "set", "inside0", "up")
        for address in (f"{_ROUTER}/24", *(f"{each}/32" for each in (PUBLIC, METADATA, *PRIVATE))):
            _outside("ip", "addr", "add", address, "dev", "inside0")
        _run("ip", "route", "add", "default", "via", _ROUTER)
        undo.enter_context(_listening(PORTS, inside=_OUTSIDE))
        yield


@contextmanager
def ipv6_around(pid: int, bridge: str) -> Iterator[None]:
    """Give a container what it has never had: IPv6, to this machine and through it to the world.

    `pid` is any process of the container.
    """
    with ExitStack() as undo:
        Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")
        for name in ("uplink0", bridge):
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("0")
        _run("ip", "-6", "address", "add", f"{HOST6}/64", "dev", bridge, "nodad")
        undo.callback(_run, "ip", "-6", "address", "del", f"{HOST6}/64", "dev", bridge)
        _run("ip", "-6", "address", "add", "2001:db8:9::1/64", "dev", "uplink0", "nodad")
        undo.callback(_run, "ip", "-6", "address", "del", "2001:db8:9::1/64", "dev", "uplink0")
        _outside("ip", "-6", "address", "add", f"{PUBLIC6}/64", "dev", "inside0", "nodad")
        undo.callback(_outside, "ip", "-6", "address", "del", f"{PUBLIC6}/64", "dev", "inside0")
        _outside("ip", "-6", "route", "replace", "fd30::/64", "via", "2001:db8:9::1")
        within(
            pid,
            "sh",
            "-c",
            "for i in all eth0; do echo 0 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; done",
        )
        within(pid, "ip", "-6", "address", "add", "fd30::2/64", "dev", "eth0", "nodad")
        within(pid, "ip", "-6", "route", "add", "default", "via", HOST6)
        yield


def within(pid: int, *command: str) -> str:
    """Run a program of this machine in the network of a container."""
    return _run("nsenter", f"--target={pid}", "--net", *command)


@contextmanager
def host_ports(*ports: int) -> Iterator[None]:
    """Servers on every address of this machine."""
    with _listening(ports):
        yield


@contextmanager
def _listening(ports: Sequence[int], inside: str | None = None) -> Iterator[None]:
    where = [] if inside is None else ["nsenter", f"--net=/run/netns/{inside}"]
    server = subprocess.Popen(
        [*where, sys.executable, "-c", _SERVER, *map(str, ports)], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"open\n"
        yield
    finally:
        server.kill()
        server.wait()


def drops(comment: str) -> int:
    """How many packets the rule with that comment has dropped."""
    for line in _run("nft", "list", "ruleset").splitlines():
        if comment in line and "counter packets" in line:
            return int(line.split("counter packets ")[1].split()[0])
    raise AssertionError(f"no rule says {comment!r}")


def wait_for_address(name: str) -> str:
    """The first IPv6 address of an interface."""

    def ask() -> str:
        said = _run("ip", "-6", "-oneline", "address", "show", "dev", name)
        return said.split()[3].partition("/")[0] if said.strip() else ""

    return eventually(ask)


def _outside(*command: str) -> str:
    return _run("nsenter", f"--net=/run/netns/{_OUTSIDE}", *command)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
