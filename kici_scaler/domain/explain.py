"""Where a job would run, and for every scaler that does not serve it, why not.

The routing table answers fast and without words; this answers in full, when asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from kici_scaler.domain.labels import RESERVED_PREFIX, canonical, role_label
from kici_scaler.domain.resources import Shape
from kici_scaler.domain.routing import Refuse, Route, RoutingTable, Wanted
from kici_scaler.domain.routing_index import Candidate, image_obstacle, quoted
from kici_scaler.domain.scalers import BackendType, Scaler

_MACHINE_LABELS = (f"{RESERVED_PREFIX}os:", f"{RESERVED_PREFIX}arch:")
_LONGEST_COMPARED = 60


class MissKind(StrEnum):
    """Why a scaler does not serve a job, in the order in which reasons are given."""

    OUTRANKED = "outranked"
    """It serves the job as well, but another label set comes first."""
    REFUSED = "refused"
    """It takes nothing at the moment."""
    LABELS = "labels"
    """It lacks a label that the job asks for."""
    EXCLUDED = "excluded"
    """It offers a label that the job excludes."""
    GATED = "gated"
    """The job does not ask for a label that it must ask for."""
    IMAGE = "image"
    """It cannot start the job with, or without, an image of the job's own."""
    TOO_LARGE = "too-large"
    """The job alone is above a cap."""


_WEIGHTS = {MissKind.LABELS: 3, MissKind.IMAGE: 2}
"""How far each obstacle keeps a scaler from the job; the others count 1."""


@dataclass(frozen=True, slots=True)
class Miss:
    """Why one scaler does not serve the job.

    Attributes:
        label_set: the labels of its label set that comes closest.
        distance: how much stands in the way there; the closest miss has the least.
    """

    scaler: str
    type: BackendType
    label_set: tuple[str, ...]
    kind: MissKind
    reason: str
    distance: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the job runs, or why nowhere.

    Attributes:
        misses: one for every scaler that is not chosen, the closest first.
        hints: what the whole configuration tells about the request (misspelt labels).
    """

    wanted: Wanted
    route: Route | None
    misses: tuple[Miss, ...]
    hints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Obstacle:
    kind: MissKind
    reason: str


def explain(table: RoutingTable, wanted: Wanted, refuse: Refuse | None = None) -> Explanation:
    """The answer of `table.route` with everything that led to it.

    Args:
        refuse: why a scaler takes nothing at the moment (retiring, paused ...), or None.
    """
    route = table.route(wanted, refuse)
    found = route if isinstance(route, Route) else None
    chosen = found.scaler.name if found else None
    misses = [
        _miss(table, wanted, scaler, refuse, found)
        for scaler in table.cluster.scalers
        if scaler.name != chosen
    ]
    misses.sort(key=lambda miss: miss.distance)
    return Explanation(wanted, found, tuple(misses), tuple(_hints(table, wanted, found)))


def _miss(
    table: RoutingTable, wanted: Wanted, scaler: Scaler, refuse: Refuse | None, route: Route | None
) -> Miss:
    """The obstacles of the label set that has the fewest."""
    own = [each for each in table.candidates if each.scaler.name == scaler.name]
    refusal = refuse(scaler) if refuse is not None else None
    ways = [(list(_obstacles(table, wanted, each, refusal)), each) for each in own]
    obstacles, candidate = min(ways, key=lambda way: _distance(way[0]))
    labels = candidate.label_set.labels
    if not obstacles:
        reason = _why_outranked(table, candidate, wanted, route)
        return Miss(scaler.name, scaler.type, labels, MissKind.OUTRANKED, reason, 0)
    first = obstacles[0]
    reason = first.reason
    if first.kind is MissKind.LABELS:
        reason = _why_labels_lack(wanted, candidate, own)
    return Miss(scaler.name, scaler.type, labels, first.kind, reason, _distance(obstacles))


def _obstacles(
    table: RoutingTable, wanted: Wanted, candidate: Candidate, refusal: str | None
) -> Iterator[_Obstacle]:
    """Everything in the way of a candidate, each missing or excluded label by itself."""
    offered, asked = candidate.offer, wanted.asked
    if refusal is not None:
        yield _Obstacle(MissKind.REFUSED, refusal)
    for label in sorted(asked - offered.routable):
        yield _Obstacle(MissKind.LABELS, label)
    for label in sorted(wanted.exclude & offered.routable) if asked else ():
        yield _Obstacle(MissKind.EXCLUDED, f"offers `{label}`, which the job excludes")
    unasked = sorted(offered.gate - asked)
    if unasked:
        yield _Obstacle(MissKind.GATED, f"needs the job to ask for {quoted(unasked)}")
    image = image_obstacle(candidate.scaler, candidate.label_set, own_image=wanted.own_image)
    if image is not None:
        yield _Obstacle(MissKind.IMAGE, image)
    size = table.size(candidate, wanted.resources)
    if not isinstance(size, Shape):
        yield _Obstacle(MissKind.TOO_LARGE, size)


def _distance(obstacles: list[_Obstacle]) -> int:
    """A job is changed more easily than what a scaler offers."""
    return sum(_WEIGHTS.get(each.kind, 1) for each in obstacles)


def _why_labels_lack(wanted: Wanted, closest: Candidate, own: list[Candidate]) -> str:
    """Told for the scaler as a whole where no label set of it has the label."""
    missing = sorted(wanted.asked - closest.offer.routable)
    nowhere = [each for each in missing if all(each not in way.offer.routable for way in own)]
    if wanted.role is not None and role_label(wanted.role) in nowhere:
        return f"does not take the role `{wanted.role.value}`"
    from_machine = [label for label in nowhere if label.startswith(_MACHINE_LABELS)]
    if from_machine:
        return _why_not_from_machines(from_machine, own)
    if nowhere:
        one = len(nowhere) == 1
        word, verb = ("label", "is") if one else ("labels", "are")
        return f"{word} {quoted(nowhere)} {verb} on none of its label sets"
    labels = ", ".join(closest.label_set.labels)
    return f"no single label set of it has all labels; [{labels}] lacks {quoted(missing)}"


def _why_not_from_machines(labels: list[str], own: list[Candidate]) -> str:
    scaler = own[0].scaler
    if scaler.platform is not None:
        platform = f"{scaler.platform.os.value}/{scaler.platform.arch.value}"
        return f"its platform is {platform}, so it does not offer {quoted(labels)}"
    if not scaler.type.is_local and labels[0].startswith(_MACHINE_LABELS[1]):
        return f"declares no `platform`, so it does not offer {quoted(labels)}"
    kinds = sorted({f"{way.facts.os}/{way.facts.arch}" for way in own if way.facts is not None})
    if kinds:
        return f"its machines are {', '.join(kinds)}, so it does not offer {quoted(labels)}"
    if not scaler.type.is_local:
        return f"its machines are linux, so it does not offer {quoted(labels)}"
    return f"no machine of it is known, so it does not offer {quoted(labels)}"


def _why_outranked(
    table: RoutingTable, candidate: Candidate, wanted: Wanted, route: Route | None
) -> str:
    if route is None:
        return "serves this job"
    if not wanted.asked:
        return f"serves this job too, but `{route.scaler.name}` comes first in the file"
    count = len(candidate.offer.routable)
    best = table.specificity(route.scaler, route.label_set)
    if best < count:
        comparison = f"is more specific ({best} labels against {count})"
    else:
        comparison = f"comes first in the file (both have {count} labels)"
    return f"serves this job too, but `{route.scaler.name}` {comparison}"


def _hints(table: RoutingTable, wanted: Wanted, route: Route | None) -> Iterator[str]:
    """Labels that no scaler offers at all, with the ones that look alike."""
    if route is not None:
        return
    offered = sorted(table.offered_labels)
    for label in sorted(wanted.labels - table.offered_labels):
        near = []
        if len(label) <= _LONGEST_COMPARED:
            near = get_close_matches(canonical(label), offered, n=1, cutoff=0.75)
        meant = f"; did you mean `{near[0]}`?" if near else ""
        yield f"no scaler offers `{label}`{meant}"
