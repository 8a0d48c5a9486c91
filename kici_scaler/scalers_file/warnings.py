"""What works, but perhaps not as meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kici_scaler.domain.labels import legacy_taints, normalise
from kici_scaler.domain.resources import above_own_limit, never_fits, resolve
from kici_scaler.domain.routing_index import quoted
from kici_scaler.domain.scalers import BackendType, Cluster, LabelSet, Resources, Scaler
from kici_scaler.domain.warm_obstacles import largest_size, warm_obstacle, warm_shortfalls
from kici_scaler.scalers_file.amounts import Strict
from kici_scaler.scalers_file.applies import LABEL_SET_KEYS, SCALER_KEYS, applies
from kici_scaler.scalers_file.explain_errors import Finding
from kici_scaler.scalers_file.models import ScalersFile
from kici_scaler.scalers_file.problems import Path


def warnings_of(file: ScalersFile, cluster: Cluster) -> Iterator[Finding]:
    """Every warning about a valid file, in the order of the file."""
    shortfalls = {scaler.name: why for scaler, why in warm_shortfalls(cluster)}
    for index, (entry, scaler) in enumerate(zip(file.scalers, cluster.scalers, strict=True)):
        place: Path = ("scalers", index)
        yield from _ignored(place, entry, entry.type, SCALER_KEYS)
        yield from _scaler_warnings(place, scaler)
        if scaler.name in shortfalls:
            message = f"the warm pool can never be full: {shortfalls[scaler.name]}"
            yield Finding((*place, "warmPool", "size"), message)
        for label_set, written in zip(scaler.label_sets, entry.label_sets, strict=True):
            inner = (*place, "labelSets", label_set.index)
            yield from _ignored(inner, written, entry.type, LABEL_SET_KEYS)
            yield from _label_set_warnings(inner, cluster, scaler, label_set)


def _ignored(
    place: Path, entry: Strict, type_: str, keys: Mapping[str, frozenset[BackendType]]
) -> Iterator[Finding]:
    for name, field in type(entry).model_fields.items():
        key = field.alias or name
        if name in entry.model_fields_set and not applies(key, type_, keys):
            types = ", ".join(sorted(keys[key]))
            hint = f"It is for: {types}."
            yield Finding((*place, key), "means nothing here and is ignored", hint=hint)


def _scaler_warnings(place: Path, scaler: Scaler) -> Iterator[Finding]:
    if scaler.type is BackendType.EVENT and scaler.platform is None:
        message = "offers no architecture label: nobody says what its machines are"
        yield Finding(place, message, hint="Declare `platform`.")
    for index, target in enumerate(scaler.provisioning_targets):
        if target.startswith("http://"):
            message = "sends one-time codes over an unencrypted connection"
            yield Finding((*place, "provisioningTargets", index), message, hint="Use https://.")
    sizes = [largest_size(each.warm_pool) for each in scaler.label_sets if each.warm_pool]
    if sizes and not any(sizes):
        yield Finding((*place, "warmPool"), "is enabled, but its size is 0: it keeps nothing")


def _label_set_warnings(
    place: Path, cluster: Cluster, scaler: Scaler, label_set: LabelSet
) -> Iterator[Finding]:
    legacy = sorted(legacy_taints(label_set.labels))
    if legacy and scaler.platform is None:
        message = f"jobs must ask for {quoted(legacy)}, as the name of a platform gates by itself"
        yield Finding((*place, "labels"), message, hint="Declare the scaler's `platform`.")
    if _is_repeated(label_set, scaler.label_sets):
        message = "is the same as one before it, which every job gets"
        yield Finding((*place, "labels"), message)
    for problem in above_own_limit(label_set.resources):
        yield Finding((*place, "resources"), problem)
    yield from _size_warnings(place, cluster, scaler, label_set)
    yield from _isolation_warnings(place, scaler, label_set)


def _size_warnings(
    place: Path, cluster: Cluster, scaler: Scaler, label_set: LabelSet
) -> Iterator[Finding]:
    need = resolve(Resources(), label_set, cluster.default_resources).requests
    problem = never_fits(need, scaler, cluster)
    if problem is not None:
        message = f"a job that declares no resources can never start here: {problem}"
        yield Finding((*place, "resources"), message)
    elif largest_size(label_set.warm_pool) > 0:
        obstacle = warm_obstacle(cluster, scaler, label_set)
        if obstacle is not None:
            yield Finding(place, f"the warm pool stays empty: {obstacle}")


def _isolation_warnings(place: Path, scaler: Scaler, label_set: LabelSet) -> Iterator[Finding]:
    options = label_set.options
    is_process = scaler.type is BackendType.BARE_METAL and label_set.text("binaryPath") is not None
    if is_process and "networkPolicy" in options:
        message = "is not enforced: agents of this label set are processes of the machine"
        yield Finding((*place, "networkPolicy"), message)
    if options.get("containerSocket") is True:
        message = "makes every job of this label set root on the machine"
        yield Finding((*place, "containerSocket"), message)


def _is_repeated(label_set: LabelSet, label_sets: Iterable[LabelSet]) -> bool:
    same = (each for each in label_sets if normalise(each.labels) == normalise(label_set.labels))
    return next(same) is not label_set
