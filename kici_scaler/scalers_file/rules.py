"""Rules between fields, checked on the data as written.

They look at raw data and step over whatever has the wrong kind (the schema reports that), so
that one run names every mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kici_scaler.domain.labels import canonical, is_reserved, overlaps, platform_taints
from kici_scaler.domain.scalers import Architecture, OperatingSystem, Platform
from kici_scaler.scalers_file.explain_errors import Finding
from kici_scaler.scalers_file.fields import BUILTIN_AGENT
from kici_scaler.scalers_file.firecracker import network_mistakes
from kici_scaler.scalers_file.fleets import fleet_mistakes
from kici_scaler.scalers_file.problems import Path, shown
from kici_scaler.scalers_file.suggest import did_you_mean

Place = Callable[[Path], str]
"""Where a path of the merged document stands, for people."""

_REQUIRED_OF_SCALER = {
    "firecracker": ("firecrackerPath", "jailerPath", "kernelPath", "uid", "gid"),
    "event": ("provisioningTargets",),
}
_REQUIRED_OF_LABEL_SET = {"container": ("image",), "firecracker": ("rootfsPath",)}

Object = dict[str, Any]


def mistakes(document: Object, place: Place) -> Iterator[Finding]:
    """Every broken rule between fields, in the order of the file."""
    for key, message, hint in network_mistakes(document.get("firecracker", {})):
        value = document.get("firecracker", {}).get(key)
        yield Finding(("firecracker", key), message, value and shown(value), hint)
    yield from _repeated_names("machinePools", document, place)
    yield from _repeated_names("scalers", document, place)
    pools = [name for _, pool in _objects(document, "machinePools") if (name := _name(pool))]
    for index, scaler in _objects(document, "scalers"):
        for finding in _scaler_mistakes(scaler, pools):
            yield _under(("scalers", index), finding)
    yield from fleet_mistakes(document, place)
    yield from _overlapping(document, place)


def _scaler_mistakes(scaler: Object, pools: list[str]) -> Iterator[Finding]:
    yield from _unknown_pool(scaler, pools)
    yield from _missing_of_scaler(scaler)
    yield from _container_host_mistakes(scaler)
    yield from _repeated_targets(scaler)
    yield from _repeated_machines(scaler)
    for index, label_set in _objects(scaler, "labelSets"):
        for finding in (
            *_missing_of_label_set(scaler, label_set),
            *_ungated(scaler, label_set),
        ):
            yield _under(("labelSets", index), finding)


def _repeated_names(key: str, document: Object, place: Place) -> Iterator[Finding]:
    """Names differ in more than case, since a name becomes a label."""
    first: dict[str, int] = {}
    for index, entry in _objects(document, key):
        name = _name(entry)
        if name is None:
            continue
        owner = first.setdefault(canonical(name), index)
        if owner != index:
            where = place((key, owner, "name"))
            yield Finding(
                (key, index, "name"),
                f"the name is taken by the one at {where}",
                shown(name),
                "Names are compared without case; choose another.",
            )


def _unknown_pool(scaler: Object, pools: list[str]) -> Iterator[Finding]:
    pool = scaler.get("machinePool")
    if isinstance(pool, str) and pool not in pools:
        known = f"Known: {', '.join(pools)}." if pools else "`machinePools` lists none."
        hint = did_you_mean(pool, pools) or known
        yield Finding(("machinePool",), "is not among `machinePools`", shown(pool), hint)


def _missing_of_scaler(scaler: Object) -> Iterator[Finding]:
    type_ = _type(scaler)
    for key in _REQUIRED_OF_SCALER.get(type_, ()):
        if scaler.get(key) in (None, []):
            yield Finding((key,), f"is required for {_a(type_)} scaler")


def _missing_of_label_set(scaler: Object, label_set: Object) -> Iterator[Finding]:
    type_ = _type(scaler)
    for key in _REQUIRED_OF_LABEL_SET.get(type_, ()):
        if label_set.get(key) is None:
            yield Finding((key,), f"is required for {_a(type_)} scaler")
    binary = label_set.get("binaryPath")
    if type_ == "bare-metal" and binary is None and label_set.get("image") is None:
        hint = f"`binaryPath: {BUILTIN_AGENT}` is the agent that ships with kici-scaler."
        yield Finding(("binaryPath",), "`binaryPath` or `image` is required", None, hint)
    if isinstance(binary, str) and binary.startswith("builtin:") and binary != BUILTIN_AGENT:
        hint = f"Did you mean `{BUILTIN_AGENT}`?"
        yield Finding(("binaryPath",), "is no built-in agent", shown(binary), hint)


def _container_host_mistakes(scaler: Object) -> Iterator[Finding]:
    if scaler.get("host") is not None and scaler.get("socketPath") is not None:
        hint = "Keep `host` for a remote runtime, `socketPath` for one on the machine."
        yield Finding(("socketPath",), "`host` and `socketPath` exclude each other", None, hint)
    tls = scaler.get("tls")
    if not isinstance(tls, dict):
        return
    if scaler.get("host") is None:
        yield Finding(("tls",), "means nothing without `host`")
    if (tls.get("certFile") is None) != (tls.get("keyFile") is None):
        yield Finding(("tls",), "`certFile` and `keyFile` go together")


def _repeated_targets(scaler: Object) -> Iterator[Finding]:
    targets = scaler.get("provisioningTargets")
    listed = targets if isinstance(targets, list) else []
    for index, target in enumerate(listed):
        if target in listed[:index]:
            path = ("provisioningTargets", index)
            yield Finding(path, "the target is listed twice", shown(target), "Keep one.")


def _repeated_machines(scaler: Object) -> Iterator[Finding]:
    seen: set[tuple[object, ...]] = set()
    for index, machine in _objects(scaler, "machines"):
        name, address = machine.get("name"), machine.get("address")
        port = machine.get("port", 22)
        if not isinstance(address, str) or not isinstance(port, int):
            continue
        marks = {("address", address, port), ("name", name if isinstance(name, str) else address)}
        if marks & seen:
            message = "is the same machine, or has the same name, as one before it"
            yield Finding(("machines", index), message, shown(name or address))
        seen |= marks


def _ungated(scaler: Object, label_set: Object) -> Iterator[Finding]:
    """A label that jobs must ask for, but that the label set does not offer."""
    offered = {*_labels(label_set, "labels"), *platform_taints(_platform(scaler))}
    for label in _labels(scaler, "mandatoryLabels"):
        if label not in offered:
            yield Finding(
                ("labels",),
                f"must offer `{label}`, as the scaler's `mandatoryLabels` make jobs ask for it",
                hint="Add it, or move the label set to another scaler.",
            )


def _overlapping(document: Object, place: Place) -> Iterator[Finding]:
    scalers = _objects(document, "scalers")
    label_sets = [[*_objects(scaler, "labelSets")] for _, scaler in scalers]
    names = [_name(scaler) or f"scalers[{index}]" for index, scaler in scalers]
    sets = [[_labels(each, "labels") for _, each in found] for found in label_sets]
    for overlap in overlaps(zip(names, sets, strict=True)):
        if not overlap.labels:
            continue
        paths = [
            ("scalers", scalers[at][0], "labelSets", label_sets[at][which][0], "labels")
            for at, which in (overlap.owner_place, overlap.other_place)
        ]
        message = f"{overlap}, at {place(paths[0])}"
        hint = "Two scalers cannot offer one identical set: add a label that tells them apart."
        yield Finding(paths[1], message, hint=hint)


def _under(prefix: Path, finding: Finding) -> Finding:
    return Finding((*prefix, *finding.path), finding.message, finding.value, finding.hint)


def _objects(parent: Object, key: str) -> list[tuple[int, Object]]:
    found = parent.get(key)
    listed = enumerate(found) if isinstance(found, list) else ()
    return [(index, each) for index, each in listed if isinstance(each, dict)]


def _labels(parent: Object, key: str) -> list[str]:
    found = parent.get(key)
    listed = found if isinstance(found, list) else []
    texts = (canonical(each) for each in listed if isinstance(each, str))
    return [label for label in texts if label and not is_reserved(label)]


def _name(entry: Object) -> str | None:
    name = entry.get("name")
    return name if isinstance(name, str) and name else None


def _type(scaler: Object) -> str:
    type_ = scaler.get("type")
    return type_ if isinstance(type_, str) else ""


def _platform(scaler: Object) -> Platform | None:
    platform: Any = scaler.get("platform")
    try:
        return Platform(OperatingSystem(platform["os"]), Architecture(platform["arch"]))
    except (TypeError, KeyError, ValueError):
        return None


def _a(type_: str) -> str:
    return f"an {type_}" if type_[0] in "aeiou" else f"a {type_}"
