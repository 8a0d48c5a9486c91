"""IPv6 is closed twice: no container has it, and what would have it reaches nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.container.networks import HOST6, PUBLIC6, host_ports, ipv6_around, within, world
from tests.e2e.container.workshop import GATEWAY_PORT, Workshop, soon
from workers.container.networks import NAME, local_addresses

_CONNECT = """
import socket, sys
for target in sys.argv[1:]:
    host, _, port = target.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            assert connection.recv(5) == b"hello"
        print(target)
    except OSError:
        pass
"""

TARGETS = {f"{HOST6}:{GATEWAY_PORT}", f"{PUBLIC6}:80"}
"""On this machine, by the input hook; beyond it, by the forward hook."""


@pytest.fixture(autouse=True, scope="module")
def _around() -> Iterator[None]:
    with world(), host_ports(GATEWAY_PORT):
        yield


def _reached(pid: int) -> set[str]:
    return set(within(pid, sys.executable, "-c", _CONNECT, *sorted(TARGETS)).split())


def test_a_container_that_had_ipv6_would_reach_neither_the_machine_nor_the_world(
    workshop: Workshop,
) -> None:
    backend, order = workshop.open(), workshop.order()
    spawned = backend.spawn(order, soon())
    api = workshop.engine.client()
    pid = int(api.inspect_container(spawned.name)["State"]["Pid"])
    [network] = [each for each in api.networks(names=[NAME]) if each["Name"] == NAME]
    api.close()
    gateway = network["IPAM"]["Config"][0]["Gateway"]
    bridge = next(name for name, held in local_addresses().items() if gateway in held)

    with ipv6_around(pid, bridge):
        reached = _reached(pid)
        subprocess.run(["nft", "delete", "table", "ip6", "kici"], check=True)
        reached_without_rules = _reached(pid)
        backend.prepare([workshop.scaler()], soon())
        reached_again = _reached(pid)

    assert reached_without_rules == TARGETS, "nothing listened, so nothing is shown"
    assert reached == reached_again == set()
