"""Where a job would run, or for every scaler why not."""

from __future__ import annotations

import pytest
from hypothesis import given

from kici_scaler.domain.explain import Miss, MissKind, explain
from kici_scaler.domain.routing import Route, RoutingTable, Wanted
from kici_scaler.domain.scalers import (
    Amount,
    BackendType,
    Cap,
    Cluster,
    Resources,
    Role,
    Scaler,
)
from tests.unit.domain.clusters import (
    LINUX_X64,
    MAC,
    cluster,
    clusters,
    requests,
    scaler,
)

LARGE = Resources(requests=Amount(cpu_millis=9000))


def _miss(one: Scaler, wanted: Wanted, *, known: bool = True) -> Miss:
    """Why a cluster of this scaler alone does not serve."""
    table = RoutingTable.build(cluster(one), {one.name: (LINUX_X64,)} if known else {})
    explanation = explain(table, wanted)
    assert explanation.route is None
    (miss,) = explanation.misses
    return miss


@pytest.mark.parametrize(
    ("one", "wanted", "kind", "reason"),
    [
        (
            scaler("s", ["linux", "gpu"], mandatory=["gpu"]),
            Wanted.of(["linux"]),
            MissKind.GATED,
            "needs the job to ask for `gpu`",
        ),
        (
            scaler("s", ["linux"], platform=MAC),
            Wanted.of(["linux"]),
            MissKind.GATED,
            "needs the job to ask for `arm64`, `macos`",
        ),
        (
            scaler("s", ["linux"], ["gpu"]),
            Wanted.of(["linux", "node20"]),
            MissKind.LABELS,
            "label `node20` is on none of its label sets",
        ),
        (
            scaler("s", ["linux"]),
            Wanted.of(["b", "a"]),
            MissKind.LABELS,
            "labels `a`, `b` are on none of its label sets",
        ),
        (
            scaler("s", ["linux", "a"], ["linux", "b"]),
            Wanted.of(["a", "b"]),
            MissKind.LABELS,
            "no single label set of it has all labels; [linux, a] lacks `b`",
        ),
        (
            scaler("s", ["linux", "spot"]),
            Wanted.of(["linux"], ["spot"]),
            MissKind.EXCLUDED,
            "offers `spot`, which the job excludes",
        ),
        (
            scaler("s", ["linux"], roles=frozenset()),
            Wanted.of(["linux"], role=Role.BUILDER),
            MissKind.LABELS,
            "does not take the role `builder`",
        ),
        (
            scaler("s", ["linux"], type=BackendType.FIRECRACKER),
            Wanted.of(["linux"], own_image=True),
            MissKind.IMAGE,
            "cannot run a job in an image of its own",
        ),
        (
            scaler("s", ["x"], type=BackendType.BARE_METAL, options={"image": "i"}),
            Wanted.of(["x"]),
            MissKind.IMAGE,
            "starts only jobs that bring an image of their own (it has no `binaryPath`)",
        ),
        (
            scaler("s", ["linux"], resource_cap=Cap(cpu_millis=4000)),
            Wanted.of(["linux"], resources=LARGE),
            MissKind.TOO_LARGE,
            "9 CPUs are above the scaler's cap of 4",
        ),
        (
            scaler("s", ["linux"]),
            Wanted.of(["kici:arch:arm64"]),
            MissKind.LABELS,
            "its machines are linux/x64, so it does not offer `kici:arch:arm64`",
        ),
        (
            scaler("s", ["linux"], platform=MAC),
            Wanted.of(["kici:arch:x64"]),
            MissKind.LABELS,
            "its platform is macos/arm64, so it does not offer `kici:arch:x64`",
        ),
        (
            scaler("s", ["linux"], type=BackendType.EVENT),
            Wanted.of(["kici:arch:x64"]),
            MissKind.LABELS,
            "declares no `platform`, so it does not offer `kici:arch:x64`",
        ),
        (
            scaler("s", ["linux"], type=BackendType.EVENT),
            Wanted.of(["kici:os:macos"]),
            MissKind.LABELS,
            "its machines are linux, so it does not offer `kici:os:macos`",
        ),
    ],
)
def test_the_first_reason_is_one_an_operator_acts_on(
    one: Scaler, wanted: Wanted, kind: MissKind, reason: str
) -> None:
    miss = _miss(one, wanted)
    assert (miss.kind, miss.reason) == (kind, reason)


def test_an_unknown_machine_is_told_apart_from_a_wrong_one() -> None:
    miss = _miss(scaler("s", ["linux"]), Wanted.of(["kici:arch:x64"]), known=False)
    assert miss.reason == "no machine of it is known, so it does not offer `kici:arch:x64`"


def _names(configured: Cluster, wanted: Wanted) -> list[str]:
    return [miss.scaler for miss in explain(RoutingTable.build(configured), wanted).misses]


def test_the_closest_miss_comes_first() -> None:
    configured = cluster(
        scaler("far", ["mac"]),
        scaler("lacking", ["linux"]),
        scaler("gated", ["linux", "gpu", "x"], mandatory=["x"]),
    )
    assert _names(configured, Wanted.of(["linux", "gpu"])) == ["gated", "lacking", "far"]


def test_equally_close_misses_stay_in_the_order_of_the_file() -> None:
    configured = cluster(*(scaler(name, [name]) for name in "cab"))
    assert _names(configured, Wanted.of(["x"])) == ["c", "a", "b"]


def test_who_takes_nothing_at_the_moment_says_so_before_anything_else() -> None:
    table = RoutingTable.build(cluster(scaler("old", ["linux"]), scaler("new", ["linux", "x"])))
    explanation = explain(
        table, Wanted.of(["linux"]), lambda s: "retiring" if s.name == "old" else None
    )
    assert explanation.route is not None
    assert explanation.route.scaler.name == "new"
    (miss,) = explanation.misses
    assert (miss.kind, miss.reason) == (MissKind.REFUSED, "retiring")


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (
            Wanted.of(["linux"]),
            "serves this job too, but `first` is more specific (6 labels against 7)",
        ),
        (Wanted.of([]), "serves this job too, but `first` comes first in the file"),
    ],
)
def test_who_is_outranked_says_by_whom(wanted: Wanted, reason: str) -> None:
    configured = cluster(scaler("first", ["linux"]), scaler("second", ["linux", "x"]))
    (miss,) = explain(RoutingTable.build(configured), wanted).misses
    assert (miss.kind, miss.reason, miss.distance) == (MissKind.OUTRANKED, reason, 0)


def test_equals_say_that_the_order_decided() -> None:
    configured = cluster(scaler("first", ["linux", "x"]), scaler("second", ["linux", "y"]))
    (miss,) = explain(RoutingTable.build(configured), Wanted.of(["linux"])).misses
    assert miss.reason == (
        "serves this job too, but `first` comes first in the file (both have 7 labels)"
    )


def test_a_misspelt_label_is_recognised() -> None:
    explanation = explain(
        RoutingTable.build(cluster(scaler("s", ["node20"]))), Wanted.of(["nod20", "q"])
    )
    assert explanation.hints == (
        "no scaler offers `nod20`; did you mean `node20`?",
        "no scaler offers `q`",
    )


def test_nothing_configured_is_explained_too() -> None:
    explanation = explain(RoutingTable.build(cluster()), Wanted.of([]))
    assert (explanation.route, explanation.misses) == (None, ())


@given(clusters(), requests())
def test_every_scaler_is_either_chosen_or_explained(configured: Cluster, wanted: Wanted) -> None:
    table = RoutingTable.build(configured)
    explanation = explain(table, wanted)
    route = table.route(wanted)
    assert explanation.route == (route if isinstance(route, Route) else None)
    named = [miss.scaler for miss in explanation.misses]
    chosen = [explanation.route.scaler.name] if explanation.route else []
    assert sorted([*named, *chosen]) == sorted(each.name for each in configured.scalers)
    for miss in explanation.misses:
        assert miss.reason
        assert (miss.distance == 0) is (miss.kind is MissKind.OUTRANKED)
        assert miss.kind is not MissKind.OUTRANKED or explanation.route is not None
