"""Labels: their canonical form, the ones added by themselves, and the taints.

What a label set offers on a kind of machine is derived once, by `offer`: the set a job
is matched against, the gate, the labels its agent registers with and the query that
counts its warm agents are views of that one answer, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kici_scaler.domain.scalers import (
    Architecture,
    BackendType,
    LabelSet,
    OperatingSystem,
    Platform,
    Role,
    Scaler,
)

RESERVED_PREFIX = "kici:"
"""Labels that start so are derived, never written by an operator."""

LEGACY_PLATFORM_LABELS = frozenset(
    {"windows", "win32", "macos", "darwin", "arm64", "aarch64", "arm"}
)
"""Plain labels that gate by themselves wherever they are offered (the reference's list)."""

_OS_TAINTS = {OperatingSystem.MACOS: "macos", OperatingSystem.WINDOWS: "windows"}
_ARCHITECTURE_TAINTS = {Architecture.ARM64: "arm64"}
_OS_NAMES = {"darwin": "macos", "win32": "windows"}
_ARCHITECTURE_NAMES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}
_OS_ALIASES = {"macos": ("macos", "darwin"), "windows": ("windows", "win32")}
_ARCHITECTURE_ALIASES = {"x64": ("x64", "amd64")}


def canonical(label: str) -> str:
    """The form in which labels are stored and compared: trimmed, lower-case."""
    return label.strip().lower()


def normalise(labels: Iterable[str]) -> str:
    """The identity of a label set: canonical, without repeats, sorted, joined by commas."""
    return ",".join(sorted({canonical(label) for label in labels}))


def is_reserved(label: str) -> bool:
    """Whether the label, once canonical, is in the reserved namespace."""
    return canonical(label).startswith(RESERVED_PREFIX)


def label_problem(label: str) -> str | None:
    """Why this text cannot be a label, or None.

    Agents receive their labels as one comma-separated line, so a label holds neither
    commas nor control characters.
    """
    if not canonical(label):
        return "is empty"
    if "," in label:
        return "contains a comma"
    if not label.strip().isprintable():
        return "contains control characters"
    return None


def role_label(role: Role) -> str:
    """The label an agent that may be asked for this role offers."""
    return f"{RESERVED_PREFIX}role:{role.value}"


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What a machine is: canonical names where known (`linux`, `x64`), raw ones otherwise."""

    os: str
    arch: str
    labels: frozenset[str] = frozenset()

    @classmethod
    def discovered(cls, system: str, machine: str, labels: Iterable[str] = ()) -> MachineFacts:
        """From what a host says of itself (`linux`, `Darwin`, `win32`; `x86_64`, `aarch64`)."""
        os, arch = canonical(system), canonical(machine)
        return cls(
            os=_OS_NAMES.get(os, os),
            arch=_ARCHITECTURE_NAMES.get(arch, arch),
            labels=frozenset(canonical(label) for label in labels),
        )

    @property
    def platform(self) -> Platform | None:
        """The supported pair, or None when the system or the architecture is another."""
        try:
            return Platform(OperatingSystem(self.os), Architecture(self.arch))
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Offer:
    """Every view of what a label set offers on one kind of machine.

    Attributes:
        agent: what its agent registers with and its token is bound to, in written order.
        gate: what a job must ask for by name to be served.
        routable: what a job's labels are matched against.
        warm_query: what an idle agent must offer to count as this pool's.
    """

    agent: tuple[str, ...]
    gate: frozenset[str]
    routable: frozenset[str]
    warm_query: frozenset[str]


def offer(scaler: Scaler, label_set: LabelSet, facts: MachineFacts | None = None) -> Offer:
    """What the label set offers on a machine of these facts (None: not known, or none)."""
    taints = platform_taints(_structured_platform(scaler, facts))
    machine_labels = tuple(sorted(facts.labels)) if facts else ()
    offered = (*label_set.labels, *machine_labels)
    agent = tuple(dict.fromkeys((*offered, *_identity_labels(scaler), *taints)))
    return Offer(
        agent=agent,
        gate=label_set.gate | frozenset(taints) | legacy_taints(offered),
        routable=frozenset(agent).union(_machine_aliases(scaler, facts)),
        warm_query=frozenset((*offered, *taints)),
    )


def routable_labels(
    scaler: Scaler, label_set: LabelSet, facts: MachineFacts | None = None
) -> frozenset[str]:
    """What a job's labels are matched against."""
    return offer(scaler, label_set, facts).routable


def gate(scaler: Scaler, label_set: LabelSet, facts: MachineFacts | None = None) -> frozenset[str]:
    """The taints: every label a job must ask for by name."""
    return offer(scaler, label_set, facts).gate


def agent_labels(
    scaler: Scaler, label_set: LabelSet, facts: MachineFacts | None = None
) -> tuple[str, ...]:
    """What an agent registers with: written labels first, then derived ones; not sorted."""
    return offer(scaler, label_set, facts).agent


def warm_query(
    scaler: Scaler, label_set: LabelSet, facts: MachineFacts | None = None
) -> frozenset[str]:
    """What an idle agent must offer to count toward this label set's warm pool."""
    return offer(scaler, label_set, facts).warm_query


def platform_taints(platform: Platform | None) -> tuple[str, ...]:
    """The plain labels a platform gates with: `macos`, `windows`, `arm64`; linux/x64 has none."""
    if platform is None:
        return ()
    found = (_OS_TAINTS.get(platform.os), _ARCHITECTURE_TAINTS.get(platform.arch))
    return tuple(taint for taint in found if taint is not None)


def legacy_taints(labels: Iterable[str]) -> frozenset[str]:
    """The offered labels that gate by themselves."""
    return LEGACY_PLATFORM_LABELS.intersection(labels)


def declared_gate(
    labels: Iterable[str], mandatory: Iterable[str], platform: Platform | None
) -> frozenset[str]:
    """The part of a gate that the configuration alone decides, whatever the machine is."""
    return frozenset(mandatory).union(platform_taints(platform), legacy_taints(labels))


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two scalers that offer one identical label set; the first in the file owns it."""

    labels: str
    owner: str
    other: str
    owner_place: tuple[int, int]
    other_place: tuple[int, int]

    def __str__(self) -> str:
        return f"label set [{self.labels}] of scaler {self.other!r} is already {self.owner!r}'s"


def overlaps(scalers: Iterable[tuple[str, Sequence[Iterable[str]]]]) -> Iterator[Overlap]:
    """Identical label sets of different scalers, each reported against its first owner.

    Takes each scaler's name and label sets. A place is the index of the scaler and that of
    the label set. Only identity overlaps: a subset does not, nor one set twice in a scaler.
    """
    owners: dict[str, tuple[str, tuple[int, int]]] = {}
    for position, (name, label_sets) in enumerate(scalers):
        for index, labels in enumerate(label_sets):
            key, place = normalise(labels), (position, index)
            owner, owner_place = owners.setdefault(key, (name, place))
            if owner_place[0] != position:
                yield Overlap(key, owner, name, owner_place, place)


def _structured_platform(scaler: Scaler, facts: MachineFacts | None) -> Platform | None:
    """The platform that taints: the declared one, else a bare-metal machine's own."""
    if scaler.platform is not None:
        return scaler.platform
    if scaler.type is BackendType.BARE_METAL and facts is not None:
        return facts.platform
    return None


def _identity_labels(scaler: Scaler) -> tuple[str, ...]:
    return (
        f"{RESERVED_PREFIX}agent:{scaler.type.value}",
        canonical(f"{RESERVED_PREFIX}scaler:{scaler.name}"),
        *(role_label(role) for role in Role if role in scaler.roles),
    )


def _machine_aliases(scaler: Scaler, facts: MachineFacts | None) -> Iterator[str]:
    """The os and arch labels; an architecture nobody declared or saw is not claimed."""
    os, arch = _system(scaler, facts)
    for name in _OS_ALIASES.get(os, (os,)) if os else ():
        yield f"{RESERVED_PREFIX}os:{name}"
    for name in _ARCHITECTURE_ALIASES.get(arch, (arch,)) if arch else ():
        yield f"{RESERVED_PREFIX}arch:{name}"


def _system(scaler: Scaler, facts: MachineFacts | None) -> tuple[str | None, str | None]:
    if scaler.platform is not None:
        return scaler.platform.os.value, scaler.platform.arch.value
    if scaler.type is BackendType.BARE_METAL:
        return (facts.os, facts.arch) if facts else (None, None)
    arch = facts.arch if facts and scaler.type.is_local else None
    return OperatingSystem.LINUX.value, arch
