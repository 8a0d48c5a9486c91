"""What a reload would do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from kici_scaler.domain.reload import LONGEST_SUMMARY, Bucket, Change, plan_reload
from kici_scaler.domain.scalers import (
    Amount,
    BackendType,
    Cap,
    Cluster,
    LabelSet,
    MachinePool,
    Resources,
    Role,
    Scaler,
    WarmPool,
    WarmSchedule,
)
from tests.unit.domain.clusters import MAC, cluster, clusters, scaler

BASE = scaler("s", ["linux"], options={"image": "old", "env": {"A": "1"}})


def _changes(old: Scaler, new: Scaler) -> dict[str, tuple[object, object]]:
    (planned,) = plan_reload(cluster(old), cluster(new)).scalers
    return {change.field: (change.old, change.new) for change in planned.changes}


def _with(**fields: Any) -> Scaler:
    return replace(BASE, **fields)


def _label_set(**fields: Any) -> Scaler:
    return replace(BASE, label_sets=(replace(BASE.label_sets[0], **fields),))


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (BASE, {}),
        (_with(max_agents=9), {"maxAgents": (4, 9)}),
        (_with(max_concurrent_spawns=1), {"maxConcurrentSpawns": (8, 1)}),
        (_with(resource_cap=Cap(cpu_millis=1500)), {"resourceCap.maxCpu": (None, "1.5")}),
        (_with(resource_cap=Cap(memory_bytes=1024)), {"resourceCap.maxMemory": (None, "1Ki")}),
        (_with(machine_pool="box"), {"machinePool": (None, "box")}),
        (_with(platform=MAC), {"platform": (None, "macos/arm64")}),
        (
            _with(roles=frozenset({Role.BUILDER})),
            {"roles": (("builder", "init-runner"), ("builder",))},
        ),
        (_with(orchestrator_url="ws://x"), {"orchestratorUrl": (None, "ws://x")}),
        (_with(options={"runtime": "podman"}), {"runtime": (None, "podman")}),
        (
            _label_set(options={"image": "new", "env": {"A": "2"}}),
            {
                "labelSets[linux].image": ("old", "new"),
                "labelSets[linux].env.A": ("1", "2"),
            },
        ),
        (_label_set(gate=frozenset({"linux"})), {"labelSets[linux].gate": ((), ("linux",))}),
        (
            _label_set(resources=Resources(limits=Amount(cpu_millis=1000))),
            {"labelSets[linux].resources.limits.cpus": (None, "1")},
        ),
        (
            _label_set(
                warm_pool=WarmPool(2, 60.0, (WarmSchedule("0 8 * * *", "UTC", 5),)),
            ),
            {
                "warmPool.size": (None, 2),
                "warmPool.idleTimeoutSeconds": (None, 60.0),
                "warmPool.schedules": (None, ("0 8 * * * UTC: 5",)),
            },
        ),
    ],
)
def test_every_field_that_differs_is_listed_with_both_values(
    new: Scaler, expected: dict[str, tuple[object, object]]
) -> None:
    assert _changes(BASE, new) == expected


def test_event_fields_are_listed_for_event_scalers() -> None:
    old = scaler("e", ["x"], type=BackendType.EVENT, provisioning_targets=("a/b",))
    new = replace(old, provisioning_targets=("a/c",), claim_ttl_seconds=5)
    assert _changes(old, new) == {
        "provisioningTargets": (("a/b",), ("a/c",)),
        "claimTtlSeconds": (300, 5),
    }


def test_label_sets_are_recognised_by_their_labels_wherever_they_stand() -> None:
    old = scaler("s", ["a"], ["b", "c"])
    new = scaler("s", ["x"], ["c", "b"], ["a"])
    assert _changes(old, new) == {
        "labelSets": (("a", "b,c"), ("x", "b,c", "a")),
        "labelSets[b,c].labels as written": (("b", "c"), ("c", "b")),
    }


def test_scalers_fall_into_buckets() -> None:
    old = cluster(scaler("kept", ["a"]), scaler("gone", ["b"]), BASE, scaler("turned", ["c"]))
    new = cluster(
        scaler("new", ["d"]),
        scaler("kept", ["a"]),
        _with(max_agents=9),
        scaler("turned", ["c"], type=BackendType.EVENT),
        scaler("back", ["e"]),
    )
    plan = plan_reload(old, new, retiring={"back"})
    assert {bucket: plan.named(bucket) for bucket in Bucket} == {
        Bucket.ADDED: ("new",),
        Bucket.KEPT: ("kept",),
        Bucket.CHANGED: ("s",),
        Bucket.REMOVED: ("gone",),
        Bucket.RESURRECTED: ("back",),
        Bucket.TYPE_CHANGED: ("turned",),
    }
    (rejection,) = plan.rejections
    assert "turned" in rejection
    assert "from container to event" in rejection
    assert "new name" in rejection


def test_what_differs_outside_of_scalers_is_listed() -> None:
    new = Cluster(
        global_max_agents=9,
        global_resource_cap=Cap(cpu_millis=1000),
        default_resources=Resources(requests=Amount(memory_bytes=1024)),
        machine_pools=(MachinePool("box", Cap(memory_bytes=2048)),),
        firecracker={"cidr": "10.0.0.0/8"},
    )
    assert plan_reload(Cluster(), new).cluster == (
        Change("globalMaxAgents", 50, 9),
        Change("globalResourceCap.maxCpu", None, "1"),
        Change("defaults.resources.requests.memory", None, "1Ki"),
        Change("machinePools", None, ("box",)),
        Change("machinePools[box].cap.maxMemory", None, "2Ki"),
        Change("firecracker.cidr", None, "10.0.0.0/8"),
    )


def test_a_new_order_is_a_change_since_it_breaks_ties() -> None:
    one, two = scaler("one", ["a"]), scaler("two", ["b"])
    plan = plan_reload(cluster(one, two), cluster(two, one, scaler("three", ["c"])))
    assert plan.cluster == (Change("order of scalers", ("one", "two"), ("two", "one")),)


@given(clusters())
def test_a_reload_to_the_same_changes_nothing(configured: Cluster) -> None:
    plan = plan_reload(configured, configured)
    assert plan.changes_nothing
    assert not plan.rejections


@given(clusters(), clusters())
def test_whatever_differs_shows_in_the_plan(old: Cluster, new: Cluster) -> None:
    plan = plan_reload(old, new)
    assert plan.changes_nothing is (old == new)
    named = [each.name for each in plan.scalers]
    assert sorted(named) == sorted({each.name for each in (*old.scalers, *new.scalers)})
    assert (plan.named(Bucket.TYPE_CHANGED) != ()) is bool(plan.rejections)


def test_two_identical_label_sets_of_one_scaler_are_told_apart() -> None:
    twice = LabelSet(0, ("a",)), LabelSet(1, ("a",), options={"image": "x"})
    old = replace(BASE, label_sets=twice)
    new = replace(BASE, label_sets=(twice[0], replace(twice[1], options={"image": "y"})))
    assert _changes(old, new) == {"labelSets[a (1)].image": ("x", "y")}


def test_the_summary_names_what_comes_goes_and_changes_in_one_line() -> None:
    old = cluster(scaler("kept", ["a"]), scaler("gone", ["b"]), BASE)
    new = cluster(
        scaler("kept", ["a"]),
        _with(max_agents=9, orchestrator_url="ws://x"),
        scaler("new", ["d"]),
        scaler("back", ["e"]),
        global_max_agents=9,
    )
    assert plan_reload(old, new, retiring={"back"}).summary == (
        "~s (maxAgents, orchestratorUrl), +new, +back (back), -gone, globalMaxAgents"
    )
    assert plan_reload(old, old).summary == "nothing"


def test_a_long_summary_is_cut() -> None:
    many = cluster(*(scaler(f"scaler-{number:03}", ["a"]) for number in range(100)))
    summary = plan_reload(cluster(), many).summary
    assert len(summary) == LONGEST_SUMMARY
    assert summary.endswith("…")


def test_what_has_not_begun_is_decided_anew_where_something_differs() -> None:
    old = cluster(scaler("kept", ["a"]), scaler("gone", ["b"]), BASE)
    changed = cluster(scaler("kept", ["a"]), _with(max_agents=9), scaler("new", ["d"]))
    assert plan_reload(old, changed).redecided == ("s",)
    everywhere = replace(changed, global_max_agents=3)
    assert plan_reload(old, everywhere).redecided == ("kept", "s")
    assert plan_reload(old, old).redecided == ()
