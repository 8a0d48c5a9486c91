"""Candidates for a job as bitsets: which of them match, in a few integer operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kici_scaler.domain.labels import MachineFacts, Offer
from kici_scaler.domain.scalers import BackendType, LabelSet, Scaler


@dataclass(frozen=True, slots=True)
class Candidate:
    """A label set on one kind of machine, and what it offers there.

    `facts` is None for compute without machines and where no machine is known yet.
    """

    scaler: Scaler
    label_set: LabelSet
    facts: MachineFacts | None
    offer: Offer


class CandidateIndex:
    """Bitsets over candidates: bit n stands for the nth, so the lowest bit left is the first."""

    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        self.candidates = candidates
        self.offering: dict[str, int] = {}
        self.of_scaler: dict[str, int] = {}
        self.of_label_set: dict[tuple[str, int], int] = {}
        self._gated: dict[str, dict[frozenset[str], int]] = {}
        self._ungated = 0
        self._with_image = self._without_image = 0
        self._all = (1 << len(candidates)) - 1
        for position, candidate in enumerate(candidates):
            self._add(candidate, 1 << position)

    def matching(self, asked: frozenset[str], exclude: frozenset[str], own_image: bool) -> int:
        """The candidates that serve these labels, as bits."""
        found = self._open_to(asked) & self._starting(own_image)
        if not asked:
            return found
        for label in asked:
            found &= self.offering.get(label, 0)
        return found & ~self._offering_any(exclude)

    def why_nothing_matches(
        self, asked: frozenset[str], exclude: frozenset[str], own_image: bool
    ) -> str:
        """The first step of matching that left nothing over, as a sentence."""
        unknown = sorted(label for label in asked if label not in self.offering)
        if not self._all:
            return "no scaler is configured"
        if unknown:
            return f"no scaler offers {quoted(unknown)}"
        left = self._all
        for label in asked:
            left &= self.offering[label]
        if not left:
            return f"no single label set offers all of {quoted(sorted(asked))}"
        if asked:
            left &= ~self._offering_any(exclude)
        if not left:
            return f"every label set that fits offers {quoted(sorted(exclude))}, now excluded"
        if not left & self._open_to(asked):
            gates = (self.candidates[bit].offer.gate - asked for bit in bits_of(left))
            nearest = min(gates, key=lambda gate: (len(gate), sorted(gate)))
            more = quoted(sorted(nearest))
            return f"every label set that fits needs the job to ask for more, such as {more}"
        return "no label set that fits can start the job " + (
            "in an image of its own" if own_image else "without an image of its own"
        )

    def _add(self, candidate: Candidate, bit: int) -> None:
        name, label_set = candidate.scaler.name, candidate.label_set
        for label in candidate.offer.routable:
            self.offering[label] = self.offering.get(label, 0) | bit
        self.of_scaler[name] = self.of_scaler.get(name, 0) | bit
        place = (name, label_set.index)
        self.of_label_set[place] = self.of_label_set.get(place, 0) | bit
        gate = candidate.offer.gate
        if gate:
            same_gate = self._gated.setdefault(min(gate), {})
            same_gate[gate] = same_gate.get(gate, 0) | bit
        else:
            self._ungated |= bit
        if image_obstacle(candidate.scaler, label_set, own_image=True) is None:
            self._with_image |= bit
        if image_obstacle(candidate.scaler, label_set, own_image=False) is None:
            self._without_image |= bit

    def _open_to(self, asked: frozenset[str]) -> int:
        """The candidates whose every gate label is asked for."""
        found = self._ungated
        for label in asked:
            for gate, bits in self._gated.get(label, {}).items():
                if gate <= asked:
                    found |= bits
        return found

    def _starting(self, own_image: bool) -> int:
        return self._with_image if own_image else self._without_image

    def _offering_any(self, labels: frozenset[str]) -> int:
        found = 0
        for label in labels:
            found |= self.offering.get(label, 0)
        return found


def bits_of(bits: int) -> Iterator[int]:
    """The positions that are set, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def image_obstacle(scaler: Scaler, label_set: LabelSet, *, own_image: bool) -> str | None:
    """Why the label set cannot start the job with, or without, an image of the job's own.

    A job's image runs where agents are containers: on container scalers and on bare-metal
    label sets that name an image and no binary; those in turn have nothing else to start.
    """
    image_only = (
        scaler.type is BackendType.BARE_METAL
        and label_set.text("image") is not None
        and label_set.text("binaryPath") is None
    )
    if own_image and not image_only and scaler.type is not BackendType.CONTAINER:
        return "cannot run a job in an image of its own"
    if image_only and not own_image:
        return "starts only jobs that bring an image of their own (it has no `binaryPath`)"
    return None


def quoted(labels: Iterable[str]) -> str:
    """Labels as people read them: `a`, `b`."""
    return ", ".join(f"`{label}`" for label in labels)
