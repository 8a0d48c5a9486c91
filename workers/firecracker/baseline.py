"""The rules that a bridge of guests has whoever is on it, as pure functions.

Two nets, one below the other. What an agent may reach is decided by its own rules at the head
of the chain `forward` (see `workers.network`), where whoever has none reaches nothing. This is
the lower one, at the tail: should the upper one be flushed, guests still reach no private
network and no metadata service.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.network.commands import LINK_LOCAL, PRIVATE_NETWORKS
from workers.network.nft import Command, Item

FAMILY = "ip"
BASELINE = "baseline"
POSTROUTING = "postrouting"
FORWARD = "forward"
SEGMENTS = "segments"
"""Before the others, since an agent's own rules end with a verdict."""

SEGMENT_BYTES = 1460
"""What TCP segments are held to where a path's own limit is not told; the reference's number."""

SOURCE_NAT_PRIORITY = 100
MANGLE_PRIORITY = -150


@dataclass(frozen=True, slots=True)
class Exit:
    """How guests get out: their network, the host's address in it, the interface they leave by."""

    cidr: str
    gateway: str
    interface: str


def commands(items: Iterable[Item], table: str, way: Exit) -> list[Command]:
    """One transaction that puts both chains in force, given what the table holds now.

    The table is never deleted, since living guests' rules may be in it.
    """
    there = list(items)
    return [
        _add("table", name=table, family=FAMILY),
        _chain(table, POSTROUTING, "nat", POSTROUTING, SOURCE_NAT_PRIORITY),
        _chain(table, FORWARD, "filter", FORWARD, 0),
        _chain(table, SEGMENTS, "filter", FORWARD, MANGLE_PRIORITY),
        _add("chain", family=FAMILY, table=table, name=BASELINE),
        _flush(table, POSTROUTING),
        _rule(table, POSTROUTING, _masquerade(way)),
        _flush(table, SEGMENTS),
        *(
            _rule(table, SEGMENTS, [_match(_payload(end), _prefix(way.cidr)), _SYN, _SMALL])
            for end in ("saddr", "daddr")
        ),
        _flush(table, BASELINE),
        *(_rule(table, BASELINE, each) for each in baseline_rules(way)),
        *_jump_last(there, table),
    ]


def baseline_rules(way: Exit) -> Iterator[list[object]]:
    """Scoped to the guests' network, in order: the host, no private networks, out, and back."""
    source = _match(_payload("saddr"), _prefix(way.cidr))
    private = {"set": [_prefix(each) for each in PRIVATE_NETWORKS]}
    yield [source, _match(_payload("daddr"), way.gateway), _ACCEPT]
    yield [source, _match(_payload("daddr"), private), _DROP]
    yield [source, _match(_payload("daddr"), _prefix(LINK_LOCAL)), _DROP]
    yield [source, _match(_meta("oifname"), way.interface), _ACCEPT]
    yield [_match(_payload("daddr"), _prefix(way.cidr)), _RELATED, _ACCEPT]


def misses(items: Iterable[Item], table: str) -> Iterator[str]:
    """What of it is not in force, in words; `items` is the listing of the table."""
    there = list(items)
    if not any("table" in each for each in there):
        yield f"the nftables table {table} is missing"
        return
    rules = _rules(there, FORWARD)
    if not rules or not _is_jump(rules[-1]):
        yield f"the last rule of chain {FORWARD} is no jump to {BASELINE}"
    if not _rules(there, BASELINE):
        yield f"chain {BASELINE} is empty"
    if not _rules(there, POSTROUTING):
        yield f"chain {POSTROUTING} does not masquerade"


def removal(items: Iterable[Item], table: str) -> list[Command]:
    """Take both away and nothing else: other rules of the table may be somebody's."""
    there = list(items)
    about: Iterator[Any] = (each["chain"] for each in there if "chain" in each)
    chains = {each["name"] for each in about}
    jumps = [
        {"delete": {"rule": _place(table, FORWARD, handle=each["handle"])}}
        for each in _rules(there, FORWARD)
        if _is_jump(each)
    ]
    dropped = [
        command
        for name in (BASELINE, POSTROUTING, SEGMENTS)
        if name in chains
        for command in (
            _flush(table, name),
            {"delete": {"chain": {"family": FAMILY, "table": table, "name": name}}},
        )
    ]
    return [*jumps, *dropped]


def _jump_last(there: Sequence[Item], table: str) -> Iterator[Command]:
    """The jump, after every other rule; where it is last already it stays."""
    rules = _rules(there, FORWARD)
    jumps = [each for each in rules if _is_jump(each)]
    if len(jumps) == 1 and rules[-1] == jumps[0]:
        return
    for each in jumps:
        yield {"delete": {"rule": _place(table, FORWARD, handle=each["handle"])}}
    yield _rule(table, FORWARD, [{"jump": {"target": BASELINE}}])


def _rules(items: Iterable[Item], chain: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for each in items:
        rule: Any = each.get("rule")
        if rule is not None and rule.get("chain") == chain:
            found.append(rule)
    return found


def _is_jump(rule: Mapping[str, Any]) -> bool:
    return any(each.get("jump", {}).get("target") == BASELINE for each in rule.get("expr", ()))


def _masquerade(way: Exit) -> list[object]:
    return [
        _match(_payload("saddr"), _prefix(way.cidr)),
        _match(_meta("oifname"), way.interface),
        {"masquerade": None},
    ]


def _add(kind: str, **about: object) -> Command:
    return {"add": {kind: about}}


def _chain(table: str, name: str, kind: str, hook: str, priority: int) -> Command:
    about = {"type": kind, "hook": hook, "prio": priority, "policy": "accept"}
    return _add("chain", family=FAMILY, table=table, name=name, **about)


def _flush(table: str, chain: str) -> Command:
    return {"flush": {"chain": {"family": FAMILY, "table": table, "name": chain}}}


def _rule(table: str, chain: str, expressions: Sequence[object]) -> Command:
    return _add("rule", **_place(table, chain, expr=list(expressions)))


def _place(table: str, chain: str, **more: object) -> dict[str, object]:
    return {"family": FAMILY, "table": table, "chain": chain, **more}


def _payload(field: str) -> object:
    return {"payload": {"protocol": "ip", "field": field}}


def _meta(key: str) -> object:
    return {"meta": {"key": key}}


def _match(left: object, right: object) -> object:
    return {"match": {"op": "==", "left": left, "right": right}}


def _prefix(cidr: str) -> object:
    address, _, length = cidr.partition("/")
    return {"prefix": {"addr": address, "len": int(length)}}


_ACCEPT = {"accept": None}
_DROP = {"drop": None}
_RELATED = {
    "match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}
}
_SYN = {
    "match": {
        "op": "in",
        "left": {"payload": {"protocol": "tcp", "field": "flags"}},
        "right": "syn",
    }
}
_SMALL = {
    "mangle": {
        "key": {"tcp option": {"name": "maxseg", "field": "size"}},
        "value": SEGMENT_BYTES,
    }
}
