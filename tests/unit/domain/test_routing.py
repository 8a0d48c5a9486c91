"""Which label set serves a job."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kici_scaler.domain.labels import MachineFacts, offer, role_label
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.resources import Need, never_fits, resolve
from kici_scaler.domain.routing import NoRoute, Route, RoutingTable, Wanted
from kici_scaler.domain.routing_index import image_obstacle
from kici_scaler.domain.scalers import (
    NOTHING,
    Amount,
    BackendType,
    Cap,
    Cluster,
    LabelSet,
    Resources,
    Role,
    Scaler,
)
from tests.unit.domain.clusters import (
    LINUX_ARM64,
    LINUX_X64,
    MAC,
    MACOS_ARM64,
    cluster,
    clusters,
    facts_of,
    requests,
    scaler,
)


def _route(configured: Cluster, *labels: str, exclude: tuple[str, ...] = ()) -> str | None:
    """Scaler and label set as `name[index]`, or None."""
    return _named(RoutingTable.build(configured).route(Wanted.of(labels, exclude)))


def _named(route: Route | NoRoute) -> str | None:
    if isinstance(route, NoRoute):
        return None
    return f"{route.scaler.name}[{route.label_set.index}]"


SMALL_FIRST = cluster(scaler("a", ["linux", "gpu", "x"], ["linux"]), scaler("b", ["linux", "gpu"]))
GATED = cluster(scaler("gpu", ["linux", "gpu"], mandatory=["gpu"]), scaler("all", ["linux", "x"]))
MACS = cluster(scaler("mac", ["linux"], platform=MAC), scaler("pc", ["linux", "x", "y", "z"]))


@pytest.mark.parametrize(
    ("configured", "labels", "exclude", "expected"),
    [
        (SMALL_FIRST, ["linux"], (), "a[1]"),
        (SMALL_FIRST, ["LINUX", " Gpu "], (), "b[0]"),
        (SMALL_FIRST, ["gpu", "x"], (), "a[0]"),
        (SMALL_FIRST, ["windows"], (), None),
        (SMALL_FIRST, ["linux"], ("gpu",), "a[1]"),
        (SMALL_FIRST, ["gpu"], ("x",), "b[0]"),
        (SMALL_FIRST, ["gpu"], ("linux",), None),
        (SMALL_FIRST, ["kici:scaler:a"], (), "a[1]"),
        (SMALL_FIRST, ["kici:agent:container", "gpu"], (), "b[0]"),
        (SMALL_FIRST, [], (), "a[0]"),
        (SMALL_FIRST, [], ("linux",), "a[0]"),
        (GATED, ["linux"], (), "all[0]"),
        (GATED, ["linux", "gpu"], (), "gpu[0]"),
        (GATED, ["linux", "gpu"], ("gpu",), None),
        (GATED, [], (), "all[0]"),
        (GATED, [], ("x",), "all[0]"),
        (cluster(scaler("g", ["gpu"], mandatory=["gpu"])), [], (), None),
        (cluster(), ["x"], (), None),
        (cluster(), [], (), None),
        (MACS, ["linux"], (), "pc[0]"),
        (MACS, ["linux", "macos"], (), None),
        (MACS, ["linux", "macos", "arm64"], (), "mac[0]"),
        (cluster(scaler("one", ["x", "y"]), scaler("two", ["x", "z"])), ["x"], (), "one[0]"),
    ],
)
def test_the_most_specific_label_set_that_is_open_serves(
    configured: Cluster, labels: list[str], exclude: tuple[str, ...], expected: str | None
) -> None:
    assert _route(configured, *labels, exclude=exclude) == expected


def test_derived_labels_count_toward_specificity() -> None:
    narrow = scaler("narrow", ["x", "y"], roles=frozenset())
    wide = scaler("wide", ["x"])
    assert _route(cluster(wide, narrow), "x") == "narrow[0]"


def test_a_role_is_asked_for_like_a_label() -> None:
    jobs_only = scaler("jobs", ["x"], roles=frozenset())
    table = RoutingTable.build(cluster(jobs_only, scaler("both", ["x", "y"])))
    assert _named(table.route(Wanted.of(["x"]))) == "jobs[0]"
    assert _named(table.route(Wanted.of(["x"], role=Role.BUILDER))) == "both[0]"
    assert Wanted.of([], role=Role.BUILDER).asked == {role_label(Role.BUILDER)}


def test_machines_decide_what_is_offered_where() -> None:
    fleet = scaler("fleet", ["linux"], type=BackendType.BARE_METAL)
    table = RoutingTable.build(cluster(fleet), {"fleet": (LINUX_X64, LINUX_ARM64, LINUX_X64)})
    plain = table.route(Wanted.of(["linux"]))
    arm = table.route(Wanted.of(["linux", "arm64"]))
    assert isinstance(plain, Route)
    assert isinstance(arm, Route)
    assert (plain.facts, arm.facts) == ((LINUX_X64,), (LINUX_ARM64,))


def test_every_kind_of_machine_that_may_serve_is_named() -> None:
    mixed = {"c": (LINUX_X64, LINUX_ARM64)}
    table = RoutingTable.build(cluster(scaler("c", ["linux"])), mixed)
    route = table.route(Wanted.of(["linux"]))
    assert isinstance(route, Route)
    assert set(route.facts) == {LINUX_X64, LINUX_ARM64}


def test_labels_of_unknown_machines_are_not_claimed() -> None:
    table = RoutingTable.build(cluster(scaler("c", ["linux"])))
    assert _named(table.route(Wanted.of(["linux", "kici:arch:x64"]))) is None
    assert _named(table.route(Wanted.of(["linux", "kici:os:linux"]))) == "c[0]"


def test_an_event_scaler_never_takes_an_architecture_from_a_machine() -> None:
    cloud = scaler("cloud", ["linux"], type=BackendType.EVENT)
    table = RoutingTable.build(cluster(cloud), {"cloud": (LINUX_X64,)})
    route = table.route(Wanted.of(["linux"]))
    assert isinstance(route, Route)
    assert route.facts == ()
    assert _named(table.route(Wanted.of(["linux", "kici:arch:x64"]))) is None


def test_who_takes_nothing_is_passed_over_and_named() -> None:
    table = RoutingTable.build(SMALL_FIRST)
    refusing = {"a": "retiring"}
    assert _named(table.route(Wanted.of(["linux"]), lambda s: refusing.get(s.name))) == "b[0]"
    refusing["b"] = "paused"
    nobody = table.route(Wanted.of(["linux"]), lambda s: refusing.get(s.name))
    assert isinstance(nobody, NoRoute)
    assert nobody.refused == refusing
    assert nobody.summary == "a: retiring; b: paused"
    assert _named(table.route(Wanted.of(["linux"]))) == "a[1]"


def test_a_job_above_a_cap_goes_where_it_fits() -> None:
    small = scaler("small", ["linux"], resource_cap=Cap(cpu_millis=1000))
    table = RoutingTable.build(cluster(small, scaler("large", ["linux", "x"])))
    large = Resources(requests=Amount(cpu_millis=2000))
    route = table.route(Wanted.of(["linux"], resources=large))
    assert isinstance(route, Route)
    assert (route.scaler.name, route.shape.requests) == ("large", Need(2000, 0))
    assert _named(table.route(Wanted.of(["linux"]))) == "small[0]"


def test_a_job_above_every_cap_is_told_so() -> None:
    small = scaler("small", ["linux"], resource_cap=Cap(cpu_millis=1000))
    wanted = Wanted.of(["linux"], resources=Resources(requests=Amount(cpu_millis=2000)))
    route = RoutingTable.build(cluster(small)).route(wanted)
    assert isinstance(route, NoRoute)
    assert route.summary == "small: 2 CPUs are above the scaler's cap of 1"


@pytest.mark.parametrize(
    ("type", "options", "without_image", "with_image"),
    [
        (BackendType.CONTAINER, {"image": "i"}, True, True),
        (BackendType.BARE_METAL, {"binaryPath": "b"}, True, False),
        (BackendType.BARE_METAL, {"binaryPath": "b", "image": "i"}, True, False),
        (BackendType.BARE_METAL, {"image": "i"}, False, True),
        (BackendType.FIRECRACKER, {"rootfsPath": "r"}, True, False),
        (BackendType.EVENT, {}, True, False),
    ],
)
def test_a_job_image_runs_only_where_agents_are_containers(
    type: BackendType, options: dict[str, object], without_image: bool, with_image: bool
) -> None:
    table = RoutingTable.build(cluster(scaler("s", ["x"], type=type, options=options)))
    assert isinstance(table.route(Wanted.of(["x"])), Route) is without_image
    assert isinstance(table.route(Wanted.of(["x"], own_image=True)), Route) is with_image


@pytest.mark.parametrize(
    ("configured", "wanted", "told"),
    [
        (cluster(), Wanted.of(["x"]), "no scaler is configured"),
        (SMALL_FIRST, Wanted.of(["y", "zz", "gpu"]), "no scaler offers `y`, `zz`"),
        (
            cluster(scaler("a", ["x"]), scaler("b", ["y"])),
            Wanted.of(["x", "y"]),
            "no single label set offers all of `x`, `y`",
        ),
        (
            SMALL_FIRST,
            Wanted.of(["gpu"], ["linux"]),
            "every label set that fits offers `linux`, now excluded",
        ),
        (
            cluster(scaler("g", ["x", "gpu", "arm"], mandatory=["gpu"])),
            Wanted.of(["x"]),
            "every label set that fits needs the job to ask for more, such as `arm`, `gpu`",
        ),
        (
            cluster(scaler("b", ["x"], type=BackendType.BARE_METAL)),
            Wanted.of(["x"], own_image=True),
            "no label set that fits can start the job in an image of its own",
        ),
    ],
)
def test_why_nothing_serves_is_one_sentence(configured: Cluster, wanted: Wanted, told: str) -> None:
    route = RoutingTable.build(configured).route(wanted)
    assert isinstance(route, NoRoute)
    assert route.summary == told


def test_a_repeated_question_gets_the_same_answer() -> None:
    table = RoutingTable.build(SMALL_FIRST)
    first, second = (table.route(Wanted.of(["linux"])) for _ in range(2))
    assert first is second
    assert isinstance(table.route(Wanted.of(["linux"]), lambda _: "paused"), NoRoute)


def test_what_was_found_out_for_a_request_is_known_for_its_kind() -> None:
    table = RoutingTable.build(SMALL_FIRST)
    asked = Waiting("job", "run", frozenset({"linux"}), declared=Resources(Amount(1, 2), NOTHING))
    alike = asked._replace(job_id="another", labels=frozenset(["linux"]), priority=7)
    assert table.known(asked.kind) is None
    route = table.route(Wanted.by(asked))
    assert table.known(alike.kind) is route
    assert table.known(alike.kind, lambda _: "paused") is None
    for other in (
        asked._replace(labels=frozenset({"gpu"})),
        asked._replace(exclude=frozenset({"gpu"})),
        asked._replace(role=Role.BUILDER),
        asked._replace(image="own"),
        asked._replace(declared=Resources(Amount(2, 1), NOTHING)),
        asked._replace(declared=Resources(NOTHING, Amount(1, 2))),
    ):
        assert table.known(other.kind) is None
        assert other.kind == Wanted.by(other).kind


def _by_the_rules(
    configured: Cluster,
    machines: dict[str, tuple[MachineFacts, ...]],
    wanted: Wanted,
    refuse: Callable[[Scaler], str | None],
) -> tuple[str, int] | None:
    """The rules once more, slowly and in the order in which they are told."""
    found: list[tuple[int, str, int]] = []
    for one in configured.scalers:
        if refuse(one) is not None:
            continue
        kinds = machines.get(one.name) if one.type.is_local else None
        for label_set in one.label_sets:
            sizes = [
                len(offer(one, label_set, facts).routable)
                for facts in kinds or (None,)
                if _serves(configured, one, label_set, facts, wanted)
            ]
            if sizes:
                found.append((min(sizes), one.name, label_set.index))
    if not found:
        return None
    best = found[0] if not wanted.asked else min(found, key=lambda each: each[0])
    return best[1:]


def _serves(
    configured: Cluster,
    one: Scaler,
    label_set: LabelSet,
    facts: MachineFacts | None,
    wanted: Wanted,
) -> bool:
    offered = offer(one, label_set, facts)
    need = resolve(wanted.resources, label_set, configured.default_resources).requests
    return (
        wanted.asked <= offered.routable
        and offered.gate <= wanted.asked
        and not (wanted.asked and wanted.exclude & offered.routable)
        and image_obstacle(one, label_set, own_image=wanted.own_image) is None
        and never_fits(need, one, configured) is None
    )


@settings(max_examples=300)
@given(st.data(), clusters(), st.lists(requests(), min_size=1, max_size=4))
def test_the_table_answers_as_the_rules_say(
    data: st.DataObject, configured: Cluster, asked: list[Wanted]
) -> None:
    machines = data.draw(facts_of(configured))
    refused = data.draw(st.sets(st.sampled_from(["s0", "s1", "s2"]), max_size=2))
    table = RoutingTable.build(configured, machines)

    def refuse(one: Scaler) -> str | None:
        return "paused" if one.name in refused else None

    for wanted in [*asked, *asked]:
        answer = table.route(wanted, refuse)
        found = None
        if isinstance(answer, Route):
            found = (answer.scaler.name, answer.label_set.index)
        else:
            assert answer.summary
        assert found == _by_the_rules(configured, machines, wanted, refuse)


@given(clusters(), requests())
def test_excluding_and_gating_only_ever_take_away(configured: Cluster, wanted: Wanted) -> None:
    table = RoutingTable.build(configured)
    answer = table.route(wanted)
    if isinstance(answer, Route) and wanted.asked:
        offered = offer(answer.scaler, answer.label_set).routable
        assert not wanted.exclude & offered
        assert offer(answer.scaler, answer.label_set).gate <= wanted.asked
        free = table.route(Wanted(wanted.labels, frozenset(), wanted.role, wanted.resources))
        assert isinstance(free, Route) or wanted.own_image


@given(clusters(), st.lists(st.sampled_from(["linux", "gpu", "a"]), max_size=3), st.randoms())
def test_the_answer_ignores_order_and_case_of_labels(
    configured: Cluster, labels: list[str], random: object
) -> None:
    shuffled = [f" {label.upper()}" for label in labels]
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types it as object
    table = RoutingTable.build(configured)
    answers = [table.route(Wanted.of(each)) for each in (labels, shuffled)]
    assert _named(answers[0]) == _named(answers[1])


def test_a_mac_machine_gates_its_own_label_sets() -> None:
    fleet = cluster(scaler("fleet", ["x"], type=BackendType.BARE_METAL))
    table = RoutingTable.build(fleet, {"fleet": (MACOS_ARM64,)})
    assert _named(table.route(Wanted.of(["x"]))) is None
    assert _named(table.route(Wanted.of(["x", "macos", "arm64"]))) == "fleet[0]"
