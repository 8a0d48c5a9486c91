"""Labels: one canonical form, derived labels, and taints from one source."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain.labels import (
    LEGACY_PLATFORM_LABELS,
    MachineFacts,
    agent_labels,
    canonical,
    gate,
    is_reserved,
    label_problem,
    normalise,
    offer,
    overlaps,
    platform_taints,
    routable_labels,
    warm_query,
)
from kici_scaler.domain.scalers import (
    Architecture,
    BackendType,
    OperatingSystem,
    Platform,
    Role,
    Scaler,
)
from tests.unit.domain.clusters import LINUX_ARM64, LINUX_X64, MAC, MACOS_ARM64, scaler, scalers

LABELS = st.lists(st.text(min_size=1, max_size=6), max_size=6)


def _shouted(label: str) -> str:
    return f" {label.upper()}\t"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([], ""),
        (["b", "a"], "a,b"),
        (["GPU", "linux", "gpu"], "gpu,linux"),
        ([" Linux "], "linux"),
    ],
)
def test_a_label_set_has_one_identity(labels: list[str], expected: str) -> None:
    assert normalise(labels) == expected


@given(LABELS, st.randoms())
def test_identity_ignores_order_and_repetition(labels: list[str], random: object) -> None:
    shuffled = [*labels, *labels]
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types it as object
    assert normalise(shuffled) == normalise(labels)


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=8))
def test_identity_ignores_case_and_blanks_around(label: str) -> None:
    assert canonical(_shouted(label)) == canonical(label)
    assert canonical(canonical(label)) == canonical(label)


@pytest.mark.parametrize("label", ["kici:x", "KICI:x", " kici:x", "\tKiCi:os:linux "])
def test_the_reserved_namespace_is_seen_through_case_and_blanks(label: str) -> None:
    assert is_reserved(label)


@pytest.mark.parametrize("label", ["kicix", "x-kici:", "my:kici:"])
def test_other_namespaces_are_free(label: str) -> None:
    assert not is_reserved(label)


@pytest.mark.parametrize(
    ("label", "problem"),
    [("", "empty"), ("  ", "empty"), ("a,b", "comma"), ("a\x00b", "control"), ("ok label", None)],
)
def test_what_cannot_be_a_label_is_told(label: str, problem: str | None) -> None:
    told = label_problem(label)
    assert (told is None) if problem is None else (told is not None and problem in told)


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", ("linux", "x64")),
        ("Darwin", "arm64", ("macos", "arm64")),
        ("win32", "AMD64", ("windows", "x64")),
        ("linux", "aarch64", ("linux", "arm64")),
        ("freebsd", "riscv64", ("freebsd", "riscv64")),
    ],
)
def test_machines_are_known_by_canonical_names(
    system: str, machine: str, expected: tuple[str, str]
) -> None:
    facts = MachineFacts.discovered(system, machine)
    assert (facts.os, facts.arch) == expected


@pytest.mark.parametrize(
    ("platform", "taints"),
    [
        (None, ()),
        (Platform(OperatingSystem.LINUX, Architecture.X64), ()),
        (Platform(OperatingSystem.LINUX, Architecture.ARM64), ("arm64",)),
        (Platform(OperatingSystem.WINDOWS, Architecture.X64), ("windows",)),
        (MAC, ("macos", "arm64")),
    ],
)
def test_anything_but_linux_on_x64_taints(
    platform: Platform | None, taints: tuple[str, ...]
) -> None:
    assert platform_taints(platform) == taints


@pytest.mark.parametrize(
    ("one", "facts", "expected"),
    [
        (
            scaler("c", ["x"]),
            LINUX_X64,
            {"kici:os:linux", "kici:arch:x64", "kici:arch:amd64"},
        ),
        (scaler("c", ["x"]), LINUX_ARM64, {"kici:os:linux", "kici:arch:arm64"}),
        (scaler("c", ["x"]), MACOS_ARM64, {"kici:os:linux", "kici:arch:arm64"}),
        (scaler("c", ["x"]), None, {"kici:os:linux"}),
        (scaler("e", ["x"], type=BackendType.EVENT), LINUX_X64, {"kici:os:linux"}),
        (
            scaler("e", ["x"], type=BackendType.EVENT, platform=MAC),
            None,
            {"kici:os:macos", "kici:os:darwin", "kici:arch:arm64"},
        ),
        (
            scaler("b", ["x"], type=BackendType.BARE_METAL),
            MACOS_ARM64,
            {"kici:os:macos", "kici:os:darwin", "kici:arch:arm64"},
        ),
        (
            scaler("b", ["x"], type=BackendType.BARE_METAL),
            MachineFacts("windows", "x64"),
            {"kici:os:windows", "kici:os:win32", "kici:arch:x64", "kici:arch:amd64"},
        ),
        (
            scaler("b", ["x"], type=BackendType.BARE_METAL),
            MachineFacts("freebsd", "riscv64"),
            {"kici:os:freebsd", "kici:arch:riscv64"},
        ),
        (scaler("b", ["x"], type=BackendType.BARE_METAL), None, set()),
        (
            scaler("b", ["x"], type=BackendType.BARE_METAL, platform=MAC),
            LINUX_X64,
            {"kici:os:macos", "kici:os:darwin", "kici:arch:arm64"},
        ),
    ],
)
def test_system_and_architecture_come_from_who_can_tell(
    one: Scaler, facts: MachineFacts | None, expected: set[str]
) -> None:
    offered = routable_labels(one, one.label_sets[0], facts)
    found = {label for label in offered if label.startswith(("kici:os:", "kici:arch:"))}
    assert found == expected


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (frozenset(Role), {"kici:role:builder", "kici:role:init-runner"}),
        (frozenset({Role.BUILDER}), {"kici:role:builder"}),
        (frozenset(), set()),
    ],
)
def test_roles_become_labels(roles: frozenset[Role], expected: set[str]) -> None:
    one = scaler("s", ["x"], roles=roles)
    offered = routable_labels(one, one.label_sets[0])
    assert {label for label in offered if label.startswith("kici:role:")} == expected


def test_the_runtime_is_never_a_label_by_itself() -> None:
    one = scaler("s", ["x"])
    offered = routable_labels(one, one.label_sets[0], LINUX_X64)
    assert not any(label.startswith("kici:runtime:") for label in offered)


def test_an_agent_registers_with_the_written_labels_first() -> None:
    one = scaler("My Pool", ["zeta", "alpha"], type=BackendType.EVENT, platform=MAC)
    assert agent_labels(one, one.label_sets[0]) == (
        "zeta",
        "alpha",
        "kici:agent:event",
        "kici:scaler:my pool",
        "kici:role:builder",
        "kici:role:init-runner",
        "macos",
        "arm64",
    )


def test_a_written_taint_is_not_offered_twice() -> None:
    one = scaler("s", ["macos", "x"], platform=MAC)
    assert agent_labels(one, one.label_sets[0]).count("macos") == 1


@pytest.mark.parametrize(
    ("one", "facts", "expected"),
    [
        (scaler("s", ["gpu"]), LINUX_ARM64, set()),
        (scaler("s", ["gpu"], platform=MAC), None, {"macos", "arm64"}),
        (scaler("s", ["gpu", "darwin"]), None, {"darwin"}),
        (scaler("s", ["gpu", "x"], mandatory=["gpu"]), None, {"gpu"}),
        (scaler("s", ["gpu"], type=BackendType.BARE_METAL), LINUX_ARM64, {"arm64"}),
        (scaler("s", ["gpu"], type=BackendType.BARE_METAL), None, set()),
    ],
)
def test_the_gate_holds_mandatory_platform_and_legacy_labels(
    one: Scaler, facts: MachineFacts | None, expected: set[str]
) -> None:
    assert gate(one, one.label_sets[0], facts) == expected


@pytest.mark.parametrize("legacy", sorted(LEGACY_PLATFORM_LABELS))
def test_legacy_platform_labels_gate_by_themselves(legacy: str) -> None:
    one = scaler("s", ["x", legacy])
    assert gate(one, one.label_sets[0]) == {legacy}


def test_the_legacy_labels_are_those_old_files_know() -> None:
    expected = {"windows", "win32", "macos", "darwin", "arm64", "aarch64", "arm"}
    assert expected == LEGACY_PLATFORM_LABELS


def test_each_label_set_has_its_own_gate() -> None:
    one = scaler("s", ["x"], ["x", "arm"])
    assert [gate(one, each) for each in one.label_sets] == [frozenset(), frozenset({"arm"})]


@pytest.mark.parametrize("facts", [None, LINUX_X64, LINUX_ARM64, MACOS_ARM64])
@given(one=scalers("s"))
def test_matcher_gate_agent_and_warm_query_never_disagree(
    one: Scaler, facts: MachineFacts | None
) -> None:
    for label_set in one.label_sets:
        offered = offer(one, label_set, facts)
        assert offered.gate <= offered.warm_query <= set(offered.agent) <= offered.routable
        assert offered.gate == gate(one, label_set, facts)
        assert offered.warm_query == warm_query(one, label_set, facts)
        assert all(label == canonical(label) for label in offered.routable)
        assert len(set(offered.agent)) == len(offered.agent)


def test_labels_of_a_machine_are_offered_on_that_machine_only() -> None:
    one = scaler("s", ["x"], type=BackendType.BARE_METAL)
    ssd = MachineFacts.discovered("linux", "x64", ["SSD", "arm"])
    offered = offer(one, one.label_sets[0], ssd)
    assert {"ssd", "arm"} <= offered.warm_query
    assert offered.gate == {"arm"}
    assert "ssd" not in routable_labels(one, one.label_sets[0], LINUX_X64)


def _pairs(*scalers: tuple[str, list[list[str]]]) -> list[tuple[str, str, str]]:
    return [(each.labels, each.owner, each.other) for each in overlaps(scalers)]


def test_identical_label_sets_of_different_scalers_overlap() -> None:
    assert _pairs(("a", [["gpu", "linux"]]), ("b", [["LINUX", " gpu"]])) == [
        ("gpu,linux", "a", "b")
    ]


def test_overlaps_are_told_against_the_first_owner() -> None:
    same: list[list[str]] = [["x"]]
    assert _pairs(("a", same), ("b", same), ("c", same)) == [("x", "a", "b"), ("x", "a", "c")]


@pytest.mark.parametrize(
    "scalers",
    [
        [("a", [["gpu"]]), ("b", [["gpu", "linux"]])],
        [("a", [["gpu"], ["gpu"]])],
    ],
)
def test_subsets_and_repetitions_within_a_scaler_do_not_overlap(
    scalers: Iterable[tuple[str, list[list[str]]]],
) -> None:
    assert not list(overlaps(scalers))


def test_an_overlap_names_the_set_and_both_scalers() -> None:
    (overlap,) = overlaps([("first", [["x", "y"]]), ("second", [["z"], ["y", "x"]])])
    assert all(word in str(overlap) for word in ("x,y", "first", "second"))
    assert (overlap.owner_place, overlap.other_place) == ((0, 0), (1, 1))
