"""Warm pools that stay inert or can never be full."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from kici_scaler.domain.scalers import (
    Amount,
    BackendType,
    Cap,
    Cluster,
    Resources,
    Scaler,
    WarmPool,
    WarmSchedule,
)
from kici_scaler.domain.warm_obstacles import largest_size, warm_obstacle, warm_shortfalls
from tests.unit.domain.clusters import MAC, cluster, clusters, scaler

SHAPE = Resources(limits=Amount(cpu_millis=1000))


def _pooled(one: Scaler, pool: WarmPool) -> Scaler:
    return replace(one, label_sets=tuple(replace(each, warm_pool=pool) for each in one.label_sets))


def _obstacle(one: Scaler, **fields: object) -> str | None:
    configured = replace(cluster(one), **fields)  # type: ignore[arg-type]  # any field of it
    return warm_obstacle(configured, one, one.label_sets[0])


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (scaler("s", ["x"], resources=SHAPE), None),
        (scaler("s", ["x"], platform=MAC, mandatory=["x"], resources=SHAPE), None),
        (scaler("s", ["x"]), "no declared shape"),
        (scaler("s", ["x"], resources=SHAPE, resource_cap=Cap(cpu_millis=500)), "cap of 0.5"),
        (
            scaler(
                "s", ["x"], type=BackendType.BARE_METAL, resources=SHAPE, options={"image": "i"}
            ),
            "bring an image of their own",
        ),
        (
            replace(
                scaler("s", ["x"]),
                label_sets=(
                    replace(scaler("s", ["x"]).label_sets[0], gate=frozenset({"elsewhere"})),
                ),
            ),
            "`elsewhere`",
        ),
    ],
)
def test_a_pool_that_cannot_work_says_why(one: Scaler, told: str | None) -> None:
    obstacle = _obstacle(one)
    assert obstacle is None if told is None else told in (obstacle or "")


def test_limits_alone_and_defaults_declare_a_shape() -> None:
    assert _obstacle(scaler("s", ["x"]), default_resources=SHAPE) is None


@pytest.mark.parametrize(
    ("pool", "size"),
    [
        (None, 0),
        (WarmPool(3), 3),
        (WarmPool(1, schedules=(WarmSchedule("", "", 7), WarmSchedule("", "", 2))), 7),
    ],
)
def test_the_largest_size_is_of_any_schedule(pool: WarmPool | None, size: int) -> None:
    assert largest_size(pool) == size


CONTAINERS = scaler("s", ["x"], ["y"], resources=SHAPE)
MACHINES_OF_A_CLOUD = scaler("s", ["x"], ["y"], type=BackendType.EVENT, resources=SHAPE)


@pytest.mark.parametrize(
    ("one", "size", "fields", "told"),
    [
        (CONTAINERS, 3, {}, None),
        (CONTAINERS, 30, {}, "its 60 agents are above globalMaxAgents (50)"),
        (MACHINES_OF_A_CLOUD, 3, {}, "its 6 agents are above maxAgents (4)"),
        (
            CONTAINERS,
            3,
            {"global_resource_cap": Cap(cpu_millis=5000)},
            "all 6 agents together: 6 CPUs are above the global cap of 5",
        ),
        (
            replace(MACHINES_OF_A_CLOUD, max_agents=9, resource_cap=Cap(cpu_millis=5000)),
            3,
            {},
            "all 6 agents together: 6 CPUs are above the scaler's cap of 5",
        ),
    ],
)
def test_a_pool_beyond_a_cap_can_never_be_full(
    one: Scaler, size: int, fields: dict[str, object], told: str | None
) -> None:
    configured = replace(
        cluster(_pooled(one, WarmPool(size))),
        **fields,  # type: ignore[arg-type]  # any field of it
    )
    assert [why for _, why in warm_shortfalls(configured)] == ([] if told is None else [told])


@given(clusters())
def test_no_configuration_makes_the_check_raise(configured: Cluster) -> None:
    for one in configured.scalers:
        for label_set in one.label_sets:
            warm_obstacle(configured, one, label_set)
    list(warm_shortfalls(configured))
