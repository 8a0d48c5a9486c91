"""What a guest reaches: stand-ins for guests and for the world are network namespaces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.harness import soon
from tests.support.waiting import eventually
from workers.firecracker.host_network import HostNetwork
from workers.firecracker.links import Links, opened
from workers.firecracker.settings import Bridge
from workers.network.access import Owner, agent_access
from workers.network.isolation import Isolation

pytestmark = pytest.mark.usefixtures("own_net")

PUBLIC, PRIVATE, METADATA = "203.0.113.1", "10.99.0.1", "169.254.169.254"
GATEWAY_PORT, OTHER_PORT = 4000, 2222

_LISTEN = """
import socket, sys, threading
for port in map(int, sys.argv[1:]):
    server = socket.create_server(("0.0.0.0", port))
    def serve(server=server):
        while True:
            server.accept()[0].close()
    threading.Thread(target=serve).start()
print("up", flush=True)
"""

_REACH = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()
"""


@dataclass
class Place:
    """A network namespace, held by a process that sleeps in it."""

    holder: subprocess.Popen[bytes]

    def run(self, *command: str) -> subprocess.CompletedProcess[bytes]:
        """Run something in there."""
        inside = f"--net=/proc/{self.holder.pid}/ns/net"
        return subprocess.run(["nsenter", inside, *command], capture_output=True, check=False)

    def reaches(self, address: str, port: int, seconds: float) -> bool:
        """Whether a connection comes about within so many seconds."""
        asked = [sys.executable, "-S", "-c", _REACH, address, str(port), str(seconds)]
        return self.run(*asked).returncode == 0


@dataclass
class World:
    """Two guests on the bridge, and what lies beyond the machine."""

    host: HostNetwork
    first: Place
    second: Place

    def let(self, address: str) -> None:
        """Put a guest's rules in force."""
        url = f"ws://10.0.0.1:{GATEWAY_PORT}/v1/agents"
        access = agent_access(
            Owner("default", f"scaler-firecracker-{address}"),
            address=address,
            gateway="10.0.0.1",
            policy=None,
            gateway_url=url,
            gateway_addresses=("10.0.0.1",),
        )
        self.host.isolation.let("kici-br0", "10.0.0.0/24", access, soon())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """All of it, with something that listens at every end."""
    with ExitStack() as stack:
        host = HostNetwork(Bridge(), Isolation(tmp_path / "lock"), tmp_path / "root")
        host.provision(soon())
        beyond, first, second = (_place(stack) for _ in range(3))
        with opened() as links:
            _join(links, beyond, "world0", "out0", ("192.0.2.1/24", f"{PUBLIC}/32"))
            for place, name, address in (
                (first, "kici-0000000a", "10.0.0.2"),
                (second, "kici-0000000b", "10.0.0.3"),
            ):
                _join(links, place, name, "kici-br0", (f"{address}/24",))
                place.run("ip", "route", "add", "default", "via", "10.0.0.1")
                port = links.find(name)
                assert port is not None
                links.isolate(port.index)
        for address in (PRIVATE, METADATA):
            beyond.run("ip", "addr", "add", f"{address}/32", "dev", "eth0")
        for listening in (beyond, second, None):
            _listen(stack, listening)
        yield World(host, first, second)


def _place(stack: ExitStack) -> Place:
    holder = stack.enter_context(subprocess.Popen(["unshare", "--net", "sleep", "600"]))
    stack.callback(holder.kill)
    own = Path("/proc/self/ns/net").stat().st_ino
    eventually(lambda: Path(f"/proc/{holder.pid}/ns/net").stat().st_ino != own)
    eventually(lambda: Path(f"/proc/{holder.pid}/comm").read_text().strip() == "sleep")
    return Place(holder)


def _join(links: Links, place: Place, name: str, bridge: str, addresses: tuple[str, ...]) -> None:
    """Connect a place with a bridge of this machine."""
    route = links._route
    route.link("add", ifname=name, kind="veth", peer={"ifname": "eth0"})
    peer, port, on = links.find("eth0"), links.find(name), links.find(bridge)
    assert peer is not None
    assert port is not None
    assert on is not None
    route.link("set", index=peer.index, net_ns_pid=place.holder.pid)
    links.attach(port.index, on.index)
    links.set_up(port.index)
    for address in addresses:
        place.run("ip", "addr", "add", address, "dev", "eth0")
    place.run("ip", "link", "set", "eth0", "up")


def _listen(stack: ExitStack, place: Place | None) -> None:
    inside = ["nsenter", f"--net=/proc/{place.holder.pid}/ns/net"] if place else []
    ports = ("80", str(GATEWAY_PORT), str(OTHER_PORT))
    server = stack.enter_context(
        subprocess.Popen(
            [*inside, sys.executable, "-S", "-c", _LISTEN, *ports], stdout=subprocess.PIPE
        )
    )
    stack.callback(server.kill)
    assert server.stdout is not None
    assert server.stdout.readline() == b"up\n"


def test_a_guest_reaches_the_world_and_the_gateway_and_nothing_else(world: World) -> None:
    before = world.first.reaches(PUBLIC, 80, 1)
    world.let("10.0.0.2")
    world.let("10.0.0.3")

    assert not before
    assert world.first.reaches(PUBLIC, 80, 20)
    assert world.first.reaches("10.0.0.1", GATEWAY_PORT, 20)
    for address, port in (
        (PRIVATE, 80),
        (METADATA, 80),
        ("10.0.0.3", 80),
        ("10.0.0.1", OTHER_PORT),
        ("192.0.2.2", OTHER_PORT),
    ):
        assert not world.first.reaches(address, port, 1), f"{address}:{port}"


def test_the_lower_net_holds_when_the_upper_one_is_flushed(world: World) -> None:
    world.let("10.0.0.2")
    flushed = ["nft", "flush", "set", "ip", "kici", "bridges"]
    subprocess.run(flushed, check=True)
    subprocess.run(["nft", "flush", "map", "ip", "kici", "agents_forward"], check=True)

    assert world.first.reaches(PUBLIC, 80, 20)
    for address in (PRIVATE, METADATA, "10.0.0.3"):
        assert not world.first.reaches(address, 80, 1), address
