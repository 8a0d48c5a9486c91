"""The rules, as data: what they let through, what they replace, and in which order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from kici_scaler.domain.networks import HostAccess
from workers.network import commands
from workers.network.access import AgentAccess, Owner, Service
from workers.network.nft import Command
from workers.network.ruleset import Entry, MarkedRule, Ruleset, read

OWNER = Owner("default", "scaler-container-0123456789ab")
OTHER = Owner("another", "scaler-container-0123456789ab")
ADDRESS = "172.30.0.2"
ACCESS = AgentAccess(OWNER, ADDRESS, "172.30.0.1")
FORWARD, INPUT = (commands.map_of(hook) for hook in commands.HOOKS)


def _with(*entries: Entry, chains: Iterable[str] = ()) -> Ruleset:
    return Ruleset(
        chains=frozenset(("ip", each) for each in chains),
        entries={FORWARD: entries, INPUT: entries},
    )


def _named(found: Iterable[Command], verb: str, kind: str) -> list[Any]:
    return [each[verb][kind] for each in found if kind in each.get(verb, {})]  # type: ignore[index, operator]  # plain JSON


def _words(rules: list[list[dict[str, object]]]) -> list[str]:
    """Each rule in short: where to, and the verdict."""
    return [_word(rule) for rule in rules]


def _word(rule: list[dict[str, object]]) -> str:
    text = json.dumps(rule)
    found = [str(each) for each in _values(rule)]
    return " ".join([*found, "accept" if '"accept"' in text else "drop"])


def _values(rule: list[dict[str, object]]) -> Iterable[object]:
    for each in rule:
        match: Any = each.get("match")
        if match is None:
            continue
        right = match["right"]
        if isinstance(right, dict) and "set" in right:
            yield [_network(one) for one in right["set"]]
        else:
            yield _network(right)


def _network(value: Any) -> object:
    if isinstance(value, dict) and "prefix" in value:
        return f"{value['prefix']['addr']}/{value['prefix']['len']}"
    return value


PRIVATE = "['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'] drop"
METADATA = "169.254.0.0/16 drop"


def test_without_a_policy_the_internet_is_open_and_private_networks_are_not() -> None:
    assert _words(commands.forward_rules(ACCESS)) == [
        "172.30.0.1 accept",
        PRIVATE,
        METADATA,
        "accept",
    ]


def test_what_is_allowed_comes_before_what_is_not() -> None:
    access = AgentAccess(
        OWNER,
        ADDRESS,
        "172.30.0.1",
        services=(Service("10.9.9.9", 4000),),
        allowlist=("10.1.0.0/16", "1.2.3.4"),
        deny_all=True,
    )

    assert _words(commands.forward_rules(access)) == [
        "172.30.0.1 accept",
        "10.9.9.9 4000 accept",
        "10.1.0.0/16 accept",
        "1.2.3.4 accept",
        PRIVATE,
        METADATA,
        "drop",
    ]


def test_of_the_host_only_what_is_listed_is_open() -> None:
    access = AgentAccess(
        OWNER,
        ADDRESS,
        "172.30.0.1",
        host_access=(
            HostAccess("172.30.0.1", 53),
            HostAccess(None, 4000),
            HostAccess("10.0.0.0/8", None),
            HostAccess(None, 4000),
        ),
    )

    assert _words(commands.input_rules(access)) == [
        "['established', 'related'] accept",
        "172.30.0.1 ['tcp', 'udp'] 53 accept",
        "['tcp', 'udp'] 4000 accept",
        "10.0.0.0/8 accept",
        "drop",
    ]


def test_an_empty_list_still_lets_answers_in_and_nothing_else() -> None:
    assert _words(commands.input_rules(ACCESS)) == ["['established', 'related'] accept", "drop"]


def test_an_agent_is_let_on_both_hooks_in_one_transaction() -> None:
    made = commands.let_commands(Ruleset(), ACCESS)

    chains = [commands.chain_of(hook, OWNER) for hook in commands.HOOKS]
    assert [each["name"] for each in _named(made, "add", "chain")] == chains
    assert [each["name"] for each in _named(made, "flush", "chain")] == chains
    assert [each["name"] for each in _named(made, "add", "element")] == [FORWARD, INPUT]
    element = _named(made, "add", "element")[0]["elem"]
    key = {"elem": {"val": ADDRESS, "comment": str(OWNER)}}
    assert element == [[key, {"goto": {"target": chains[0]}}]]


def test_letting_it_again_replaces_its_rules_and_nothing_else() -> None:
    present = _with(Entry(ADDRESS, OWNER), chains=map(_chain, commands.HOOKS))

    made = commands.let_commands(present, ACCESS)

    assert _named(made, "add", "element") == []
    assert _named(made, "delete", "element") == []
    assert len(_named(made, "flush", "chain")) == 2


def _chain(hook: str) -> str:
    return commands.chain_of(hook, OWNER)


def test_whoever_had_the_address_before_loses_it_with_all_rules() -> None:
    present = _with(Entry(ADDRESS, OTHER), chains=[commands.chain_of("forward", OTHER)])

    made = commands.let_commands(present, ACCESS)

    assert [each["elem"] for each in _named(made, "delete", "element")] == [[ADDRESS]] * 2
    gone = [each["name"] for each in _named(made, "delete", "chain")]
    assert gone == [commands.chain_of("forward", OTHER)]
    verbs = [next(iter(each)) for each in made]
    assert verbs.index("delete") < verbs.index("add")


def test_an_address_that_nobodys_name_is_on_is_taken_over() -> None:
    made = commands.let_commands(_with(Entry(ADDRESS, None)), ACCESS)

    assert len(_named(made, "delete", "element")) == len(_named(made, "add", "element")) == 2


def test_an_earlier_address_of_the_same_agent_goes() -> None:
    made = commands.let_commands(_with(Entry("172.30.0.9", OWNER)), ACCESS)

    assert [each["elem"] for each in _named(made, "delete", "element")] == [["172.30.0.9"]] * 2


def test_forgetting_removes_exactly_what_is_the_agents() -> None:
    present = _with(
        Entry(ADDRESS, OWNER),
        Entry("172.30.0.20", OTHER),
        chains=[_chain("forward"), _chain("input"), commands.chain_of("input", OTHER)],
    )

    made = commands.forget_commands(present, [OWNER])

    assert [each["elem"] for each in _named(made, "delete", "element")] == [[ADDRESS]] * 2
    gone = [each["name"] for each in _named(made, "delete", "chain")]
    assert gone == [_chain("forward"), _chain("input")]
    assert commands.forget_commands(Ruleset(), [OWNER]) == []


@pytest.mark.parametrize("hook", commands.HOOKS)
def test_names_of_chains_can_be_read_back_by_the_text_form(hook: str) -> None:
    names = {commands.chain_of(hook, owner) for owner in (OWNER, OTHER)}
    assert len(names) == 2
    assert all(each.replace("/", "").replace("_", "").isalnum() for each in names)


def test_a_bridge_is_closed_in_all_three_families() -> None:
    made = commands.close_commands(Ruleset(), "kici-agents30", "172.30.0.0/16")

    closed = [(each["family"], each["elem"]) for each in _named(made, "add", "element")]
    network = {"prefix": {"addr": "172.30.0.0", "len": 16}}
    assert closed == [
        ("ip", ["kici-agents30"]),
        ("ip6", ["kici-agents30"]),
        ("bridge", [network]),
    ]
    assert {each["family"] for each in _named(made, "add", "table")} == set(commands.FAMILIES)
    assert len(_marks(made, "ip6", "forward")) == 2, "from agents, and to them"
    assert len(_marks(made, "ip6", "input")) == 1
    assert len(_marks(made, "bridge", "forward")) == 3, "sent, received, and asked for"


def _marks(made: Iterable[Command], family: str, chain: str) -> list[str]:
    """Our rules of a chain in the order they will have: each is put at the head."""
    put = [
        each["comment"]
        for each in _named(made, "insert", "rule")
        if (each["family"], each["chain"]) == (family, chain)
    ]
    return list(reversed(put))


def test_agents_are_told_by_address_before_the_rest_is_dropped() -> None:
    made = commands.close_commands(Ruleset(), "kici-agents30", "172.30.0.0/16")

    for hook in commands.HOOKS:
        assert [each[6:12] for each in _marks(made, "ip", hook)] == ["agents", "whoeve"]


def test_whoever_is_not_sorted_is_dropped() -> None:
    made = commands.close_commands(Ruleset(), "kici-agents30", "172.30.0.0/16")

    rules = [each for each in _named(made, "insert", "rule") if each["family"] != "ip"]
    unsorted = [each for each in _named(made, "insert", "rule") if "whoever" in each["comment"]]
    assert len(unsorted) == 2
    assert all(each["expr"][-1] == {"drop": None} for each in [*rules, *unsorted])


def test_what_is_in_place_is_left_alone_and_what_is_not_is_made_anew() -> None:
    made = commands.close_commands(Ruleset(), "kici-agents30", "172.30.0.0/16")
    right = {
        (family, chain): tuple(
            MarkedRule(number, mark) for number, mark in enumerate(_marks(made, family, chain))
        )
        for family, chain in (
            ("ip", "forward"),
            ("ip", "input"),
            ("ip6", "forward"),
            ("ip6", "input"),
            ("bridge", "forward"),
        )
    }
    members = {
        ("ip", "bridges"): frozenset({"kici-agents30"}),
        ("ip6", "bridges"): frozenset({"kici-agents30"}),
        ("bridge", "networks"): frozenset({"172.30.0.0/16"}),
    }
    in_place = Ruleset(marked=right, members=members)

    again = commands.close_commands(in_place, "kici-agents30", "172.30.0.0/16")
    assert _named(again, "insert", "rule") == _named(again, "add", "element") == []
    assert _named(again, "delete", "rule") == []

    turned = {**right, ("ip", "input"): tuple(reversed(right["ip", "input"]))}
    anew = commands.close_commands(
        Ruleset(marked=turned, members=members), "kici-agents30", "172.30.0.0/16"
    )
    assert [each["handle"] for each in _named(anew, "delete", "rule")] == [1, 0]
    assert len(_marks(anew, "ip", "input")) == 2


def test_a_listing_is_read_for_what_is_ours() -> None:
    listing: list[dict[str, object]] = [
        {"metainfo": {"version": "1.0.6"}},
        {"table": {"family": "ip", "name": "kici"}},
        {"chain": {"family": "ip", "table": "kici", "name": "forward"}},
        {"rule": {"family": "ip", "chain": "forward", "handle": 7, "comment": "kici: x"}},
        {"rule": {"family": "ip", "chain": "forward", "handle": 8, "comment": "theirs"}},
        {"rule": {"family": "ip", "chain": "forward", "handle": 9}},
        {"set": {"family": "ip", "name": "bridges", "elem": ["kici-agents30"]}},
        {
            "set": {
                "family": "bridge",
                "name": "networks",
                "elem": [{"prefix": {"addr": "172.30.0.0", "len": 16}}],
            }
        },
        {
            "map": {
                "family": "ip",
                "name": FORWARD,
                "elem": [
                    [{"elem": {"val": ADDRESS, "comment": str(OWNER)}}, {"goto": {"target": "x"}}],
                    ["172.30.0.20", {"drop": None}],
                ],
            }
        },
        {"map": {"family": "ip", "name": INPUT}},
    ]

    found = read(listing, commands.MARK)

    assert found.chains == {("ip", "forward")}
    assert found.marked == {("ip", "forward"): (MarkedRule(7, "kici: x"),)}
    assert found.members["bridge", "networks"] == {"172.30.0.0/16"}
    assert found.owners() == {OWNER}
    assert found.owner_of(FORWARD, ADDRESS) == OWNER
    assert found.owner_of(FORWARD, "172.30.0.20") is None
    assert found.has_address(FORWARD, "172.30.0.20")
    assert not found.has_address(INPUT, ADDRESS)
