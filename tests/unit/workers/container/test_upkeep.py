"""Rules that were lost come back, but never for somebody who has left meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.unit.workers.container.orders import order
from workers.container import networks, upkeep
from workers.container.engine import Connection
from workers.container.images import Images
from workers.container.marks import agent_marks
from workers.container.networks import AgentNetwork
from workers.container.records import Records
from workers.container.seen import Listed, Seen
from workers.container.tools import Tools
from workers.contract import Deadline
from workers.network.access import AgentAccess, Owner
from workers.network.isolation import Isolation

ADDRESS, ELSEWHERE = "172.30.0.2", "172.30.0.3"
POLICY = (
    '{"gateway": "172.30.0.1", "services": [], "allowlist": ["10.0.0.0/8"],'
    ' "denyAll": false, "hostAccess": []}'
)
OWNER = Owner(order().installation_id, order().agent_id)
MARKS = agent_marks(order(), POLICY)


class Rules(Isolation):
    """Rules that were flushed; what is put in force is remembered."""

    def __init__(self) -> None:
        self.let_in: list[str] = []

    def addresses(self, deadline: Deadline) -> Mapping[Owner, str]:
        return {}

    def let(self, bridge: str, network: str, access: AgentAccess, deadline: Deadline) -> None:
        self.let_in.append(access.address)


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def tools(tmp_path: Path, rules: Rules) -> Tools:
    return Tools(Records(tmp_path / "agents"), Images(tmp_path / "pulls"), rules, tmp_path)


def _restored(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, seen_now: Seen | None
) -> tuple[Owner, ...]:
    """What comes back of an agent that ran at its address when the list was made."""
    own_network = AgentNetwork("kici-agents30", "172.30.0.0/16", "172.30.0.1")
    monkeypatch.setattr(networks, "ensure", lambda _connection: own_network)
    monkeypatch.setattr(upkeep, "own_container", lambda *_: seen_now)
    connection = cast("Connection", SimpleNamespace(deadline=Deadline.after(20)))
    listed = Listed.of(
        {
            "Id": "c0ffee",
            "Names": ["/kici-x"],
            "Labels": MARKS,
            "State": "running",
            "Created": 1_700_000_000,
            "NetworkSettings": {"Networks": {networks.NAME: {"IPAddress": ADDRESS}}},
        }
    )
    return upkeep.restore_rules(connection, tools, [listed])


def _at(address: str) -> Seen:
    return Seen("c0ffee", "kici-x", MARKS, "running", addresses={networks.NAME: address})


def test_lost_rules_come_back(tools: Tools, rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _restored(tools, monkeypatch, _at(ADDRESS)) == (OWNER,)
    assert rules.let_in == [ADDRESS]


@pytest.mark.parametrize("now", [None, _at(ELSEWHERE)], ids=["gone", "elsewhere"])
def test_whoever_left_since_the_list_was_made_gets_no_rules_back(
    tools: Tools, rules: Rules, monkeypatch: pytest.MonkeyPatch, now: Seen | None
) -> None:
    assert _restored(tools, monkeypatch, now) == ()
    assert rules.let_in == []


def test_whoever_is_being_made_or_destroyed_is_left_to_that(
    tools: Tools, rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tools.records.held(OWNER, Deadline.after(20)):
        assert _restored(tools, monkeypatch, _at(ADDRESS)) == ()
    assert rules.let_in == []
