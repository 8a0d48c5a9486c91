"""The agents' network: which range, which bridge."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pytest

from workers.container.networks import (
    SUBNETS,
    AgentNetwork,
    bridge_of,
    free_subnet,
    read_network,
)
from workers.container.reach import addresses_of, seen_from_inside
from workers.contract import Deadline
from workers.errors import NotDone


def test_the_first_range_is_taken_where_nothing_has_it() -> None:
    assert free_subnet([]) == IPv4Network("172.30.0.0/16")
    assert bridge_of(SUBNETS[0]) == "kici-agents30"


def test_a_range_that_the_machine_uses_is_passed_over() -> None:
    taken = [IPv4Network("172.30.5.0/24"), IPv4Network("172.28.0.0/15")]

    assert free_subnet(taken) == IPv4Network("172.27.0.0/16")
    assert free_subnet([IPv4Network("172.16.0.0/12")]) is None


def _said(**more: Any) -> dict[str, Any]:
    return {
        "Id": "0123456789abcdef",
        "IPAM": {"Config": [{"Subnet": "172.30.0.0/16", "Gateway": "172.30.0.1"}]},
        **more,
    }


@pytest.mark.parametrize(
    ("said", "here", "bridge"),
    [
        (_said(), {}, "br-0123456789ab"),
        (_said(), {"cni-podman1": ("172.30.0.1",)}, "cni-podman1"),
        (_said(Labels={"kici-bridge": "kici-agents30"}), {}, "kici-agents30"),
        (_said(Options={"com.docker.network.bridge.name": "ours0"}), {}, "ours0"),
    ],
)
def test_the_bridge_is_found_whoever_made_the_network(
    said: dict[str, Any], here: dict[str, tuple[str, ...]], bridge: str
) -> None:
    assert read_network(said, here) == AgentNetwork(bridge, "172.30.0.0/16", "172.30.0.1")


def test_a_gateway_that_is_not_told_is_the_first_address() -> None:
    said = {"Id": "0" * 64, "IPAM": {"Config": [{"Subnet": "172.30.0.0/16"}]}}

    assert read_network(said, {}).gateway == "172.30.0.1"


@pytest.mark.parametrize("config", [None, [], [{"Subnet": "fd00::/64"}], [{}]])
def test_a_network_without_ipv4_is_of_no_use(config: Any) -> None:
    with pytest.raises(NotDone, match="no IPv4 range"):
        read_network({"Id": "0" * 64, "IPAM": {"Config": config}}, {})


@pytest.mark.parametrize(
    ("url", "inside"),
    [
        ("ws://127.0.0.1:4000/v1/agents", "ws://172.30.0.1:4000/v1/agents"),
        ("ws://localhost/v1/agents", "ws://172.30.0.1/v1/agents"),
        ("wss://[::1]:4000/v1/agents", "wss://172.30.0.1:4000/v1/agents"),
        ("wss://ci.example.com/v1/agents", "wss://ci.example.com/v1/agents"),
        ("ws://10.0.0.9:4000", "ws://10.0.0.9:4000"),
    ],
)
def test_loopback_means_the_host_and_not_the_container(url: str, inside: str) -> None:
    assert seen_from_inside(url, "172.30.0.1") == inside


def test_names_are_those_the_containers_are_told() -> None:
    options = {"extraHosts": ("ci.internal:10.0.0.9", "me:host-gateway")}
    soon = Deadline.after(5)

    assert addresses_of("ws://ci.internal:4000", options, soon) == ("10.0.0.9",)
    assert addresses_of("ws://10.1.1.1:4000", options, soon) == ("10.1.1.1",)
    assert addresses_of("nonsense", options, soon) == ()
    assert addresses_of("ws://localhost:4000", {}, soon) == ("127.0.0.1",)


def test_a_name_that_nobody_knows_opens_nothing() -> None:
    assert addresses_of("ws://no-such-name.invalid:4000", {}, Deadline.after(5)) == ()
