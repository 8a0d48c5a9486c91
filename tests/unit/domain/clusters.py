"""Configurations and requests for tests: hand-made ones, and generated ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from kici_scaler.domain.labels import MachineFacts, declared_gate
from kici_scaler.domain.routing import Wanted
from kici_scaler.domain.scalers import (
    Amount,
    Architecture,
    BackendType,
    Cap,
    Cluster,
    LabelSet,
    OperatingSystem,
    Platform,
    Resources,
    Role,
    Scaler,
)

LINUX_X64 = MachineFacts("linux", "x64")
LINUX_ARM64 = MachineFacts("linux", "arm64")
MACOS_ARM64 = MachineFacts("macos", "arm64")
MAC = Platform(OperatingSystem.MACOS, Architecture.ARM64)


def scaler(
    name: str,
    *label_sets: Iterable[str],
    type: BackendType = BackendType.CONTAINER,
    mandatory: Iterable[str] = (),
    platform: Platform | None = None,
    resources: Resources | None = None,
    options: dict[str, object] | None = None,
    **fields: Any,
) -> Scaler:
    """A scaler whose label sets all have the same gate, resources and options."""
    sets = tuple(
        LabelSet(
            index=index,
            labels=tuple(labels),
            gate=declared_gate(labels, mandatory, platform),
            resources=resources or Resources(),
            options=options or {},
        )
        for index, labels in enumerate(label_sets)
    )
    return Scaler(name=name, type=type, max_agents=4, label_sets=sets, platform=platform, **fields)


def cluster(*scalers: Scaler, **fields: Any) -> Cluster:
    """A cluster of these scalers."""
    return Cluster(scalers=scalers, **fields)


_LABELS = st.sampled_from(["linux", "gpu", "arm64", "node20", "a", "b"])
_AMOUNTS = st.builds(
    Amount, st.sampled_from([None, 500, 1000, 4000]), st.sampled_from([None, 1024, 4096])
)
RESOURCES = st.builds(Resources, _AMOUNTS, _AMOUNTS)
_PLATFORMS = st.none() | st.builds(
    Platform, st.sampled_from(OperatingSystem), st.sampled_from(Architecture)
)
_FACTS = st.sampled_from([LINUX_X64, LINUX_ARM64, MACOS_ARM64, MachineFacts("freebsd", "riscv64")])


@st.composite
def scalers(draw: st.DrawFn, name: str) -> Scaler:
    """A scaler of any type, with one to three label sets of a small vocabulary."""
    platform = draw(_PLATFORMS)
    type_ = draw(st.sampled_from(BackendType))
    mandatory = draw(st.sets(_LABELS, max_size=1))
    options = draw(st.sampled_from([{"binaryPath": "x"}, {"image": "x"}]))
    label_sets = draw(st.lists(st.sets(_LABELS, min_size=1, max_size=3), min_size=1, max_size=3))
    return Scaler(
        name=name,
        type=type_,
        max_agents=1,
        platform=platform,
        roles=draw(st.frozensets(st.sampled_from(Role))),
        resource_cap=draw(st.sampled_from([Cap(), Cap(cpu_millis=2000), Cap(memory_bytes=2048)])),
        label_sets=tuple(
            LabelSet(
                index=index,
                labels=tuple(sorted(labels | mandatory)),
                gate=declared_gate(labels | mandatory, mandatory, platform),
                resources=draw(RESOURCES),
                options=options,
            )
            for index, labels in enumerate(label_sets)
        ),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to four scalers."""
    count = draw(st.integers(0, 4))
    return Cluster(
        scalers=tuple(draw(scalers(f"s{number}")) for number in range(count)),
        global_resource_cap=draw(st.sampled_from([Cap(), Cap(cpu_millis=3000)])),
        default_resources=draw(RESOURCES),
    )


@st.composite
def facts_of(draw: st.DrawFn, cluster: Cluster) -> dict[str, tuple[MachineFacts, ...]]:
    """Kinds of machines for some of the scalers."""
    return {
        scaler.name: tuple(draw(st.lists(_FACTS, max_size=2)))
        for scaler in cluster.scalers
        if draw(st.booleans())
    }


def requests() -> st.SearchStrategy[Wanted]:
    """What jobs may ask for, known and unknown labels alike."""
    asked = st.sampled_from(
        ["linux", "gpu", "arm64", "node20", "a", "b", "macos", "kici:arch:arm64", "kici:os:linux"]
    )
    return st.builds(
        Wanted,
        labels=st.frozensets(asked, max_size=3),
        exclude=st.frozensets(_LABELS, max_size=1),
        role=st.none() | st.sampled_from(Role),
        resources=RESOURCES,
        own_image=st.booleans(),
    )
