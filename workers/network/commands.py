"""Rules as pure functions: from what there is and what shall be, to one transaction."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence

from kici_scaler.domain.networks import HostAccess
from workers.network.access import AgentAccess, Owner
from workers.network.nft import Command
from workers.network.ruleset import Ruleset

TABLE = "kici"

MARK = "kici: "
"""How the comments of our rules in base chains begin."""

PRIVATE_NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
LINK_LOCAL = "169.254.0.0/16"
"""Where clouds answer with a machine's own credentials."""

HOOKS = ("forward", "input")
"""Packets to an address of the host never pass `forward`, so both are needed."""

FAMILIES = ("ip", "ip6", "bridge")

_BRIDGES, _NETWORKS = "bridges", "networks"
_BY_ADDRESS = MARK + "agents by their address"
_UNKNOWN = MARK + "whoever has no rules reaches nothing"
_NO_IPV6 = MARK + "no IPv6"
_NO_SIBLINGS = MARK + "agents do not reach each other"

Expression = dict[str, object]


def map_of(hook: str) -> str:
    """The map that sends an agent's packets to its chain."""
    return f"agents_{hook}"


def chain_of(hook: str, owner: Owner) -> str:
    """The chain with an agent's rules, spelt so that the text form of `nft` takes it back."""
    return re.sub(r"[^A-Za-z0-9/]", "_", f"{hook}_{owner}")


def close_commands(present: Ruleset, bridge: str, network: str) -> list[Command]:
    """Close a bridge: its agents reach nothing until they are let, each other never.

    `network` is the bridge's own, such as `172.30.0.0/16`.
    """
    return [*_ground(present), *_closed(present, bridge, network)]


def let_commands(present: Ruleset, access: AgentAccess) -> list[Command]:
    """Give an agent exactly what it may reach, whoever had its address before."""
    evicted = {present.owner_of(map_of(hook), access.address) for hook in HOOKS} - {
        None,
        access.owner,
    }
    commands = forget_commands(present, [each for each in evicted if each is not None])
    for hook in HOOKS:
        commands += _let(present, access, hook)
    return commands


def forget_commands(present: Ruleset, owners: Iterable[Owner]) -> list[Command]:
    """Take away everything that stands for these agents; nothing for those without rules."""
    commands: list[Command] = []
    for owner in sorted(owners, key=str):
        for hook in HOOKS:
            commands += _forget(present, owner, hook)
    return commands


def forward_rules(access: AgentAccess) -> list[list[Expression]]:
    """What an agent reaches beyond the host, in order; the last rule decides the rest."""
    services = [[_to(each.address), _tcp_port(each.port), _ACCEPT] for each in access.services]
    allowed = [[_to(each), _ACCEPT] for each in access.allowlist]
    return [
        [_to(access.gateway), _ACCEPT],
        *services,
        *allowed,
        [_to(*PRIVATE_NETWORKS), _COUNTER, _DROP],
        [_to(LINK_LOCAL), _COUNTER, _DROP],
        [_COUNTER, _DROP] if access.deny_all else [_ACCEPT],
    ]


def input_rules(access: AgentAccess) -> list[list[Expression]]:
    """What an agent reaches on the host itself, in order; nothing else."""
    opened = [_host_rule(each) for each in dict.fromkeys(access.host_access)]
    return [[_RELATED, _ACCEPT], *opened, [_COUNTER, _DROP]]


def _let(present: Ruleset, access: AgentAccess, hook: str) -> list[Command]:
    chain, name = chain_of(hook, access.owner), map_of(hook)
    rules = forward_rules(access) if hook == "forward" else input_rules(access)
    stale = set(present.addresses(name, access.owner)) - {access.address}
    known = present.owner_of(name, access.address) == access.owner
    nameless = present.has_address(name, access.address) and not present.owner_of(
        name, access.address
    )
    element = {"val": access.address, "comment": str(access.owner)}
    gone = [*sorted(stale), *([access.address] if nameless else [])]
    return [
        *(_ip("delete", "element", name=name, elem=[each]) for each in gone),
        _ip("add", "chain", name=chain),
        _ip("flush", "chain", name=chain),
        *(_ip("add", "rule", chain=chain, expr=rule) for rule in rules),
        *(
            []
            if known
            else [_ip("add", "element", name=name, elem=[[{"elem": element}, _goto(chain)]])]
        ),
    ]


def _forget(present: Ruleset, owner: Owner, hook: str) -> Iterator[Command]:
    name, chain = map_of(hook), chain_of(hook, owner)
    for address in present.addresses(name, owner):
        yield _ip("delete", "element", name=name, elem=[address])
    if ("ip", chain) in present.chains:
        yield _ip("flush", "chain", name=chain)
        yield _ip("delete", "chain", name=chain)


def _ground(present: Ruleset) -> Iterator[Command]:
    """Sets, maps and base chains (making them again changes nothing), and the rules in those."""
    yield from (_add("table", family=family, name=TABLE) for family in FAMILIES)
    for family in ("ip", "ip6"):
        yield _add("set", family=family, table=TABLE, name=_BRIDGES, type="ifname")
        for hook in HOOKS:
            yield _base_chain(family, hook)
    yield _add(
        "set", family="bridge", table=TABLE, name=_NETWORKS, type="ipv4_addr", flags=["interval"]
    )
    yield _base_chain("bridge", "forward")
    for hook in HOOKS:
        yield _ip("add", "map", name=map_of(hook), type="ipv4_addr", map="verdict")
    yield from _marked(present, "ip", "forward", _gate_rules("forward"))
    yield from _marked(present, "ip", "input", _gate_rules("input"))
    yield from _marked(present, "ip6", "forward", _NO_IPV6_FORWARD)
    yield from _marked(present, "ip6", "input", _NO_IPV6_INPUT)
    yield from _marked(present, "bridge", "forward", _NO_SIBLING_RULES)


def _closed(present: Ruleset, bridge: str, network: str) -> Iterator[Command]:
    wanted = [("ip", _BRIDGES, bridge), ("ip6", _BRIDGES, bridge), ("bridge", _NETWORKS, network)]
    for family, name, text in wanted:
        if text not in present.members.get((family, name), ()):
            yield _add("element", family=family, table=TABLE, name=name, elem=[_element(text)])


def _marked(
    present: Ruleset, family: str, chain: str, rules: Sequence[tuple[str, list[Expression]]]
) -> Iterator[Command]:
    """Our rules at the head of a base chain, so that what others append stays behind them."""
    there = present.marked.get((family, chain), ())
    if [each.mark for each in there] == [mark for mark, _ in rules]:
        return
    place = {"family": family, "table": TABLE, "chain": chain}
    for each in there:
        yield {"delete": {"rule": {**place, "handle": each.handle}}}
    for mark, expressions in reversed(rules):
        yield {"insert": {"rule": {**place, "comment": mark, "expr": expressions}}}


def _gate_rules(hook: str) -> list[tuple[str, list[Expression]]]:
    sorter: Expression = {"vmap": {"key": _payload("ip", "saddr"), "data": f"@{map_of(hook)}"}}
    return [(_BY_ADDRESS, [sorter]), (_UNKNOWN, [_interface("iifname"), _COUNTER, _DROP])]


def _host_rule(access: HostAccess) -> list[Expression]:
    to = [] if access.network is None else [_to(access.network)]
    port = (
        [] if access.port is None else [_TCP_OR_UDP, _equals(_payload("th", "dport"), access.port)]
    )
    return [*to, *port, _ACCEPT]


def _to(*networks: str) -> Expression:
    listed = [_element(each) for each in networks]
    return _equals(_payload("ip", "daddr"), listed[0] if len(listed) == 1 else {"set": listed})


def _tcp_port(port: int) -> Expression:
    return _equals(_payload("tcp", "dport"), port)


def _element(text: str) -> object:
    """An address, a network or a name as the JSON schema has it."""
    if "/" not in text:
        return text
    network = ipaddress.IPv4Network(text)
    return {"prefix": {"addr": str(network.network_address), "len": network.prefixlen}}


def _payload(protocol: str, field: str) -> Expression:
    return {"payload": {"protocol": protocol, "field": field}}


def _equals(left: Expression, right: object) -> Expression:
    return {"match": {"op": "==", "left": left, "right": right}}


def _interface(key: str) -> Expression:
    return _equals({"meta": {"key": key}}, f"@{_BRIDGES}")


def _goto(chain: str) -> Expression:
    return {"goto": {"target": chain}}


def _add(kind: str, **about: object) -> Command:
    return {"add": {kind: about}}


def _ip(verb: str, kind: str, **about: object) -> Command:
    return {verb: {kind: {"family": "ip", "table": TABLE, **about}}}


def _base_chain(family: str, hook: str) -> Command:
    about = {"type": "filter", "hook": hook, "prio": 0, "policy": "accept"}
    return _add("chain", family=family, table=TABLE, name=hook, **about)


_ACCEPT: Expression = {"accept": None}
_DROP: Expression = {"drop": None}
_COUNTER: Expression = {"counter": None}
_RELATED: Expression = {
    "match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}
}
_TCP_OR_UDP = _equals({"meta": {"key": "l4proto"}}, {"set": ["tcp", "udp"]})

_NO_IPV6_FORWARD = [
    (_NO_IPV6 + " from agents", [_interface("iifname"), _COUNTER, _DROP]),
    (_NO_IPV6 + " to agents", [_interface("oifname"), _COUNTER, _DROP]),
]
_NO_IPV6_INPUT = [(_NO_IPV6 + " to the host", [_interface("iifname"), _COUNTER, _DROP])]
_NO_SIBLING_RULES = [
    (f"{_NO_SIBLINGS}: {what}", [_equals(_payload(*where), f"@{_NETWORKS}"), _COUNTER, _DROP])
    for what, where in (
        ("what they send", ("ip", "saddr")),
        ("what is sent to them", ("ip", "daddr")),
        ("what they say of addresses", ("arp", "saddr ip")),
    )
]
