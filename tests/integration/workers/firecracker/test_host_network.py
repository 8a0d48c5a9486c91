"""The host's side of a bridge, in a network namespace that the test makes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.harness import soon
from workers.errors import NotDone
from workers.firecracker.host_network import HostNetwork
from workers.firecracker.links import Links, make_tap, opened
from workers.firecracker.names import PROBE_TAP
from workers.firecracker.settings import Bridge
from workers.network import nft
from workers.network.access import Owner
from workers.network.isolation import Isolation

pytestmark = pytest.mark.usefixtures("own_net")

OWNER = Owner("default", "scaler-firecracker-0123456789ab")
TAP = "kici-456789ab"


@pytest.fixture
def host(tmp_path: Path) -> HostNetwork:
    """The default bridge, with its files below the test's folder."""
    return HostNetwork(Bridge(), Isolation(tmp_path / "lock"), tmp_path / "root")


def _rules() -> str:
    return subprocess.run(
        ["nft", "--stateless", "list", "ruleset"], capture_output=True, text=True, check=True
    ).stdout


def _ruleset() -> list[dict[str, Any]]:
    text = subprocess.run(["nft", "--json", "list", "ruleset"], capture_output=True, check=True)
    found: list[dict[str, Any]] = json.loads(text.stdout)["nftables"]
    return found


def _delete(chain: str, table: str = "kici") -> None:
    nft.run([{"flush": {"chain": {"family": "ip", "table": table, "name": chain}}}], soon())


def test_a_bare_machine_is_made_ready(host: HostNetwork) -> None:
    before = host.health(soon())
    host.provision(soon())

    assert not before.is_healthy
    assert "there is no bridge kici-br0" in before.detail
    assert host.health(soon()).detail == "healthy"
    rules = _rules()
    assert 'ip saddr 10.0.0.0/24 oifname "out0" masquerade' in rules
    assert "jump baseline" in rules
    with opened() as links:
        assert links.find(PROBE_TAP) is None


def test_doing_it_again_changes_nothing(host: HostNetwork) -> None:
    host.provision(soon())
    first = _rules()

    host.provision(soon())

    assert _rules() == first
    assert not host.ensure(soon())


def test_what_was_lost_is_told_and_put_right(host: HostNetwork) -> None:
    host.provision(soon())
    with opened() as links:
        bridge = links.find("kici-br0")
        assert bridge is not None
        links._route.link("set", index=bridge.index, state="down")
    _delete("forward")
    _delete("baseline")

    detail = host.health(soon()).detail

    for miss in ("kici-br0 is down", "no jump to baseline", "baseline is empty"):
        assert miss in detail
    assert host.ensure(soon())
    assert host.health(soon()).is_healthy


def test_a_rule_that_came_behind_the_jump_is_put_before_it(host: HostNetwork) -> None:
    host.provision(soon())
    rule = {"family": "ip", "table": "kici", "chain": "forward", "expr": [{"accept": None}]}
    nft.run([{"add": {"rule": rule}}], soon())

    assert "the last rule of chain forward" in host.health(soon()).detail
    host.ensure(soon())

    assert host.health(soon()).is_healthy
    assert sum("baseline" in json.dumps(each.get("rule", {}).get("expr", ""))
               for each in _ruleset()) == 1  # fmt: skip


def test_a_port_that_is_not_isolated_is_told_and_isolated(host: HostNetwork) -> None:
    host.provision(soon())
    with opened() as links:
        tap = make_tap(links, TAP, OWNER, "kici-br0", (0, 0))
        links._route.brport("set", index=tap.index, isolated=0)

    assert host.health(soon()).detail == f"not isolated: {TAP}"
    host.ensure(soon())

    with opened() as links:
        assert [each.is_isolated for each in links.ports("kici-br0")] == [True]


def test_others_on_the_bridge_are_not_judged(host: HostNetwork) -> None:
    host.provision(soon())
    with opened() as links:
        bridge = links.find("kici-br0")
        assert bridge is not None
        links._route.link("add", ifname="foreign0", kind="veth", peer="foreign1")
        port = links.find("foreign0")
        assert port is not None
        links.attach(port.index, bridge.index)

    assert host.health(soon()).is_healthy


def test_a_machine_that_may_not_be_provisioned_is_left_alone(tmp_path: Path) -> None:
    bridge = Bridge(provisions_itself=False)
    host = HostNetwork(bridge, Isolation(tmp_path / "lock"), tmp_path)

    with pytest.raises(NotDone, match="not ready"):
        host.ensure(soon())

    with opened() as links:
        assert links.find(bridge.name) is None


def test_without_a_way_out_it_says_so(host: HostNetwork) -> None:
    with opened() as links:
        links.remove("out0")

    with pytest.raises(NotDone, match="no default route"):
        host.provision(soon())
    with pytest.raises(NotDone, match="no interface elsewhere0"):
        host.provision(soon(), "elsewhere0")
    host.provision(soon(), "lo")


def test_what_was_made_is_taken_away_and_nothing_else(host: HostNetwork) -> None:
    host.provision(soon())
    foreign = {"family": "ip", "table": "kici", "chain": "forward", "expr": [{"accept": None}]}
    nft.run([{"insert": {"rule": foreign}}], soon())

    for _ in range(2):
        assert host.teardown(soon()) == ()

    with opened() as links:
        assert links.find("kici-br0") is None
    rules = _rules()
    assert "masquerade" not in rules
    assert "jump baseline" not in rules
    assert "accept" in rules


def test_a_guests_interface_is_its_owners_and_can_be_completed(host: HostNetwork) -> None:
    host.provision(soon())
    with opened() as links:
        for _ in range(2):
            make_tap(links, TAP, OWNER, "kici-br0", (1001, 1001))
        found = links.find(TAP)
        with pytest.raises(NotDone, match="not this agent's"):
            make_tap(links, TAP, Owner("default", "another"), "kici-br0", (0, 0))
        _removed_twice(links)

    assert found is not None
    assert (found.owner, found.is_up, found.is_isolated) == (OWNER, True, True)


def _removed_twice(links: Links) -> None:
    assert links.remove(TAP)
    assert not links.remove(TAP)


def test_an_interface_whose_maker_was_killed_before_it_named_it_is_made_anew(
    host: HostNetwork,
) -> None:
    host.provision(soon())
    with opened() as links:
        left = links.add_tap(TAP, 4711, 4711)

        made = make_tap(links, TAP, OWNER, "kici-br0", (0, 0))

        assert made.index != left.index
        assert [each.owner for each in links.ports("kici-br0")] == [OWNER]


def test_a_guests_interface_needs_its_bridge() -> None:
    with opened() as links, pytest.raises(NotDone, match="no bridge kici-br0"):
        make_tap(links, TAP, OWNER, "kici-br0", (0, 0))
