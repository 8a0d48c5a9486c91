"""What an agent may reach, before any rule is written."""

from __future__ import annotations

import json

import pytest

from kici_scaler.domain.networks import HostAccess, NetworkPolicy
from workers.network.access import (
    AgentAccess,
    Owner,
    Service,
    agent_access,
    default_host_access,
    port_of,
)

OWNER = Owner("default", "scaler-container-0123456789ab")
GATEWAY = "172.30.0.1"


def _access(policy: NetworkPolicy | None, url: str = "ws://10.9.9.9:4000/v1/agents") -> AgentAccess:
    return agent_access(
        OWNER,
        address="172.30.0.2",
        gateway=GATEWAY,
        policy=policy,
        gateway_url=url,
        gateway_addresses=["10.9.9.9", "10.9.9.8", "10.9.9.9"],
    )


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("ws://ci.example.com:4000/v1/agents", 4000),
        ("ws://ci.example.com/v1/agents", 80),
        ("wss://ci.example.com", 443),
        ("http://ci.example.com", 80),
        ("https://ci.example.com", 443),
        ("ftp://ci.example.com", None),
        ("not a url", None),
        ("ws://ci.example.com:99999", None),
        ("ws://", None),
    ],
)
def test_a_url_leads_to_its_port_or_to_that_of_its_scheme(url: str, port: int | None) -> None:
    assert port_of(url) == port


def test_by_default_the_host_gives_names_and_the_gateways_port() -> None:
    assert default_host_access(GATEWAY, "ws://ci.example.com:4000") == (
        HostAccess(GATEWAY, 53),
        HostAccess(None, 4000),
    )


def test_what_cannot_be_told_from_a_url_is_left_out() -> None:
    assert default_host_access(GATEWAY, "ftp://ci.example.com") == (HostAccess(GATEWAY, 53),)


def test_a_policy_replaces_the_default_entirely() -> None:
    assert _access(NetworkPolicy(host_access=())).host_access == ()
    listed = (HostAccess(None, 8080),)
    assert _access(NetworkPolicy(host_access=listed)).host_access == listed
    assert len(_access(NetworkPolicy()).host_access) == len(_access(None).host_access) == 2


def test_the_gateway_elsewhere_is_reachable_at_each_address_once() -> None:
    assert _access(None).services == (Service("10.9.9.8", 4000), Service("10.9.9.9", 4000))
    assert _access(None, "nothing").services == ()


def test_what_is_written_down_can_be_read_back() -> None:
    policy = NetworkPolicy(("10.0.0.0/8", "1.2.3.4"), True, (HostAccess("10.1.1.1", None),))
    access = _access(policy)

    written = json.loads(json.dumps(access.as_json()))

    assert AgentAccess.from_json(OWNER, access.address, written) == access


def test_nonsense_is_not_read_as_an_access() -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        AgentAccess.from_json(OWNER, "172.30.0.2", {"gateway": GATEWAY})


@pytest.mark.parametrize("text", ["", "default", "/agent", "default/"])
def test_only_an_owner_is_read_as_one(text: str) -> None:
    assert Owner.parse(text) is None
    assert Owner.parse(str(OWNER)) == OWNER
