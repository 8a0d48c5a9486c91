"""What a guest reaches: stand-ins for guests and for the world are network namespaces."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.harness import soon
from tests.support.network_places import Place, join, join_as_guest, listen, make_place
from workers.firecracker.host_network import HostNetwork
from workers.firecracker.links import opened
from workers.firecracker.settings import Bridge
from workers.network.access import Owner, agent_access
from workers.network.isolation import Isolation

pytestmark = pytest.mark.usefixtures("own_net")

PUBLIC, PRIVATE, METADATA = "203.0.113.1", "10.99.0.1", "169.254.169.254"
GATEWAY_PORT, OTHER_PORT = 4000, 2222


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
        beyond, first, second = (make_place(stack) for _ in range(3))
        with opened() as links:
            join(links, beyond, "world0", "out0", ("192.0.2.1/24", f"{PUBLIC}/32"))
            join_as_guest(links, first, "kici-0000000a", "kici-br0", "10.0.0.2")
            join_as_guest(links, second, "kici-0000000b", "kici-br0", "10.0.0.3")
        for address in (PRIVATE, METADATA):
            beyond.run("ip", "addr", "add", f"{address}/32", "dev", "eth0")
        for listening in (beyond, second, None):
            listen(stack, listening, 80, GATEWAY_PORT, OTHER_PORT)
        yield World(host, first, second)


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
