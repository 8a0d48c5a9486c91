"""Reading a listing of our tables into what the commands are built from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.network.access import Owner
from workers.network.nft import Item


@dataclass(frozen=True, slots=True)
class MarkedRule:
    """A rule of ours in a base chain, known by its comment."""

    handle: int
    mark: str


@dataclass(frozen=True, slots=True)
class Entry:
    """An address that is in the map of a hook; `owner` is None when nobody's name is on it."""

    address: str
    owner: Owner | None


@dataclass(frozen=True, slots=True)
class Ruleset:
    """What of our tables there is.

    Attributes:
        chains: as (family, chain).
        marked: our rules of a base chain, in their order, by (family, chain).
        entries: the addresses in each map, by the map's name.
        members: the elements of each set as text, by (family, set).
    """

    chains: frozenset[tuple[str, str]] = frozenset()
    marked: Mapping[tuple[str, str], tuple[MarkedRule, ...]] = field(default_factory=dict)
    entries: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    members: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    def owners(self) -> frozenset[Owner]:
        """Everyone who has an address in some map."""
        return frozenset(
            entry.owner for each in self.entries.values() for entry in each if entry.owner
        )

    def addresses(self, map_name: str, owner: Owner) -> tuple[str, ...]:
        """The addresses that are that owner's in a map."""
        return tuple(each.address for each in self.entries.get(map_name, ()) if each.owner == owner)

    def owner_of(self, map_name: str, address: str) -> Owner | None:
        """Whose the address is in a map."""
        found = (each.owner for each in self.entries.get(map_name, ()) if each.address == address)
        return next(found, None)

    def has_address(self, map_name: str, address: str) -> bool:
        """Whether the address is in a map, whoever's it is."""
        return any(each.address == address for each in self.entries.get(map_name, ()))


def read(items: Iterable[Item], mark: str) -> Ruleset:
    """The ruleset in a listing; `mark` is how the comments of our own rules begin."""
    chains: set[tuple[str, str]] = set()
    marked: dict[tuple[str, str], list[MarkedRule]] = {}
    entries: dict[str, tuple[Entry, ...]] = {}
    members: dict[tuple[str, str], frozenset[str]] = {}
    for item in items:
        for kind, value in item.items():
            about: Any = value
            if kind == "chain":
                chains.add((about["family"], about["name"]))
            elif kind == "rule" and str(about.get("comment", "")).startswith(mark):
                rule = MarkedRule(int(about["handle"]), str(about["comment"]))
                marked.setdefault((about["family"], about["chain"]), []).append(rule)
            elif kind == "map":
                entries[about["name"]] = tuple(map(_entry, about.get("elem", ())))
            elif kind == "set":
                key = (about["family"], about["name"])
                members[key] = frozenset(map(_member, about.get("elem", ())))
    frozen = {key: tuple(rules) for key, rules in marked.items()}
    return Ruleset(frozenset(chains), frozen, entries, members)


def _entry(element: Any) -> Entry:
    """One element of a map: `[key, verdict]`, where a key with a comment is an object."""
    key = element[0]
    if not isinstance(key, dict) or "elem" not in key:
        return Entry(str(key), None)
    return Entry(str(key["elem"]["val"]), Owner.parse(str(key["elem"].get("comment", ""))))


def _member(element: Any) -> str:
    """One element of a set; a network is `{prefix: {addr, len}}`."""
    if isinstance(element, dict) and "prefix" in element:
        return f"{element['prefix']['addr']}/{element['prefix']['len']}"
    return str(element)
