"""Which label set serves a job: subset matching, gates, excludes, most specific wins.

A table is built once a revision of the configuration and answers from bitsets, one bit a
label set on one kind of machine, ordered so that the lowest bit left is the best answer.
Why nothing serves is worked out only when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kici_scaler.domain.labels import MachineFacts, canonical, offer, role_label
from kici_scaler.domain.request import Kind, Waiting, kind_of
from kici_scaler.domain.resources import Shape, never_fits, resolve
from kici_scaler.domain.routing_index import Candidate, CandidateIndex, bits_of
from kici_scaler.domain.scalers import (
    Cluster,
    LabelSet,
    Resources,
    Role,
    Scaler,
)

Refuse = Callable[[Scaler], "str | None"]
"""Why a scaler takes nothing at the moment (paused, retiring ...), or None."""

_MOST_REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job asks of an agent; labels are canonical (`Wanted.of` makes them so).

    Attributes:
        resources: what the job itself declares, before any cascade.
        own_image: whether the job brings a container image that its steps run in.
    """

    labels: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    role: Role | None = None
    resources: Resources = field(default_factory=Resources)
    own_image: bool = False

    @classmethod
    def of(
        cls,
        labels: Iterable[str],
        exclude: Iterable[str] = (),
        *,
        role: Role | None = None,
        resources: Resources | None = None,
        own_image: bool = False,
    ) -> Wanted:
        """From labels in any case, with blanks around them."""
        return cls(
            labels=frozenset(canonical(label) for label in labels),
            exclude=frozenset(canonical(label) for label in exclude),
            role=role,
            resources=resources or Resources(),
            own_image=own_image,
        )

    @classmethod
    def by(cls, request: Waiting) -> Wanted:
        """What routing looks at of a request."""
        return cls(
            request.labels,
            request.exclude,
            request.role,
            request.declared,
            own_image=request.image is not None,
        )

    @property
    def kind(self) -> Kind:
        """The same as that of every request that asks for this."""
        return kind_of(self.labels, self.exclude, self.role, self.resources, self.own_image)

    @property
    def asked(self) -> frozenset[str]:
        """Every label the job asks for, that of its role included."""
        return self.labels if self.role is None else self.labels | {role_label(self.role)}


@dataclass(frozen=True, slots=True)
class Route:
    """Who serves the job: the label set, every kind of machine of it that may, the size."""

    scaler: Scaler
    label_set: LabelSet
    facts: tuple[MachineFacts, ...]
    shape: Shape


@dataclass(frozen=True)
class NoRoute:
    """Nothing serves the job.

    Attributes:
        wanted: what was asked.
        refused: by scaler name, why one that fits the labels did not take it. Empty when
            no label set fits: then only a change of the job or of the configuration helps.
    """

    wanted: Wanted
    refused: Mapping[str, str]
    table: RoutingTable = field(repr=False, compare=False)

    @cached_property
    def summary(self) -> str:
        """One sentence for the row of a waiting request."""
        if self.refused:
            return "; ".join(f"{name}: {why}" for name, why in self.refused.items())
        return self.table.why_nothing_matches(self.wanted)


def refusing(closed: Mapping[str, str]) -> Refuse:
    """Refuses these scalers, each for its reason."""
    return lambda scaler: closed.get(scaler.name)


class RoutingTable:
    """Every label set of one configuration, ready to be asked.

    Build one when the configuration or the set of known machines changes, and keep it:
    answers to repeated questions are remembered.
    """

    def __init__(self, cluster: Cluster, candidates: Iterable[Candidate]) -> None:
        self.cluster = cluster
        written = tuple(candidates)
        self._in_file_order = CandidateIndex(written)
        # The sort is stable: equally specific label sets stay in the order of the file.
        self._by_specificity = CandidateIndex(
            tuple(sorted(written, key=lambda each: len(each.offer.routable)))
        )
        self._answers: dict[Kind, Route | NoRoute] = {}

    @classmethod
    def build(
        cls,
        cluster: Cluster,
        facts_by_scaler: Mapping[str, Iterable[MachineFacts]] | None = None,
    ) -> RoutingTable:
        """The table of a configuration whose scalers have these kinds of machines.

        A scaler without an entry gets no labels that only its machines can tell.
        """
        known = facts_by_scaler or {}
        return cls(
            cluster,
            (
                Candidate(scaler, label_set, facts, offer(scaler, label_set, facts))
                for scaler in cluster.scalers
                for label_set in scaler.label_sets
                for facts in _kinds_of_machines(scaler, known)
            ),
        )

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every candidate in the order of the file."""
        return self._in_file_order.candidates

    @property
    def offered_labels(self) -> frozenset[str]:
        """Every label that any label set offers."""
        return frozenset(self._by_specificity.offering)

    def route(self, wanted: Wanted, refuse: Refuse | None = None) -> Route | NoRoute:
        """The most specific label set that serves the job, or why there is none."""
        kind = wanted.kind
        known = self.known(kind, refuse)
        if known is not None:
            return known
        refused: dict[str, str] = {}
        answer = self._best(wanted, refuse, refused) or NoRoute(wanted, refused, self)
        if not refused:
            self._remember(kind, answer)
        return answer

    def known(self, kind: Kind, refuse: Refuse | None = None) -> Route | NoRoute | None:
        """The answer to such requests if it was found before and still holds."""
        known = self._answers.get(kind)
        if refuse is None or not isinstance(known, Route) or refuse(known.scaler) is None:
            return known
        return None

    def _remember(self, kind: Kind, answer: Route | NoRoute) -> None:
        """Requests come in few kinds; whoever invents endless ones costs time, not memory."""
        if len(self._answers) >= _MOST_REMEMBERED:
            self._answers.clear()
        self._answers[kind] = answer

    def _best(self, wanted: Wanted, refuse: Refuse | None, refused: dict[str, str]) -> Route | None:
        """The best candidate that is neither refused nor too small; notes those that are."""
        order = self._order(wanted)
        left = order.matching(wanted.asked, wanted.exclude, wanted.own_image)
        while left:
            best = order.candidates[(left & -left).bit_length() - 1]
            same = order.of_label_set[best.scaler.name, best.label_set.index]
            obstacle = refuse(best.scaler) if refuse is not None else None
            if obstacle is not None:
                left &= ~order.of_scaler[best.scaler.name]
                refused[best.scaler.name] = obstacle
                continue
            size = self.size(best, wanted.resources)
            if isinstance(size, Shape):
                kinds = (order.candidates[bit].facts for bit in bits_of(left & same))
                return Route(best.scaler, best.label_set, tuple(filter(None, kinds)), size)
            left &= ~same
            refused.setdefault(best.scaler.name, size)
        return None

    def size(self, candidate: Candidate, resources: Resources) -> Shape | str:
        """The shape an agent for a job of these resources has there, or why it never starts."""
        shape = resolve(resources, candidate.label_set, self.cluster.default_resources)
        return never_fits(shape.requests, candidate.scaler, self.cluster) or shape

    def specificity(self, scaler: Scaler, label_set: LabelSet) -> int:
        """How many labels it offers, on the kind of machine where it offers fewest."""
        order = self._by_specificity
        first = next(bits_of(order.of_label_set[scaler.name, label_set.index]))
        return len(order.candidates[first].offer.routable)

    def why_nothing_matches(self, wanted: Wanted) -> str:
        """Which step left nothing over, for a job whose labels no label set serves."""
        return self._by_specificity.why_nothing_matches(
            wanted.asked, wanted.exclude, wanted.own_image
        )

    def _order(self, wanted: Wanted) -> CandidateIndex:
        """Most specific first; a job that asks for nothing takes the first in the file."""
        return self._by_specificity if wanted.asked else self._in_file_order


def _kinds_of_machines(
    scaler: Scaler, known: Mapping[str, Iterable[MachineFacts]]
) -> tuple[MachineFacts | None, ...]:
    """Distinct facts of the scaler's machines, in a stable order; (None,) without any."""
    kinds = set(known.get(scaler.name, ())) if scaler.type.is_local else set()
    return tuple(sorted(kinds, key=lambda each: (each.os, each.arch, sorted(each.labels)))) or (
        None,
    )
