"""Mirroring, the cascade, shapes, caps, and what jobs may declare."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain.resources import (
    BadResources,
    Need,
    Shape,
    above_own_limit,
    beyond_cap,
    mirrored,
    never_fits,
    parse_resources,
    resolve,
    same_shape,
)
from kici_scaler.domain.scalers import (
    Amount,
    BackendType,
    Cap,
    LabelSet,
    MachinePool,
    Resources,
)
from tests.unit.domain.clusters import RESOURCES, cluster, scaler

NOTHING = Resources()
CPU = Amount(cpu_millis=2000)
MEMORY = Amount(memory_bytes=1024)
BOTH = Amount(2000, 1024)


def _resolve(job: Resources, own: Resources = NOTHING, defaults: Resources = NOTHING) -> Shape:
    return resolve(job, LabelSet(0, ("x",), resources=own), defaults)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (Resources(limits=CPU), Resources(CPU, CPU)),
        (Resources(requests=MEMORY), Resources(MEMORY, MEMORY)),
        (Resources(CPU, MEMORY), Resources(CPU, MEMORY)),
        (NOTHING, NOTHING),
    ],
)
def test_a_side_alone_means_both_and_a_partial_side_is_left_partial(
    declared: Resources, expected: Resources
) -> None:
    assert mirrored(declared) == expected


@pytest.mark.parametrize(
    ("job", "own", "defaults", "expected"),
    [
        (NOTHING, NOTHING, NOTHING, Shape()),
        (Resources(limits=CPU), NOTHING, NOTHING, Shape(Need(2000, 0), CPU)),
        (
            Resources(CPU, CPU),
            Resources(Amount(1000, 512), Amount(1000, 512)),
            NOTHING,
            Shape(Need(2000, 512), Amount(2000, 512)),
        ),
        (
            NOTHING,
            Resources(requests=CPU),
            Resources(limits=MEMORY),
            Shape(Need(2000, 1024), Amount(2000, 1024)),
        ),
        (
            Resources(requests=CPU, limits=MEMORY),
            NOTHING,
            NOTHING,
            Shape(Need(2000, 0), MEMORY),
        ),
        (
            Resources(requests=CPU, limits=MEMORY),
            Resources(limits=Amount(9000, 9000)),
            NOTHING,
            Shape(Need(2000, 9000), Amount(9000, 1024)),
        ),
    ],
)
def test_each_field_comes_from_the_job_then_the_label_set_then_the_defaults(
    job: Resources, own: Resources, defaults: Resources, expected: Shape
) -> None:
    assert _resolve(job, own, defaults) == expected


@given(RESOURCES, RESOURCES, RESOURCES)
def test_the_first_that_declares_a_field_decides_it(
    job: Resources, own: Resources, defaults: Resources
) -> None:
    shape = _resolve(job, own, defaults)
    sources = [mirrored(each) for each in (job, own, defaults)]
    for field in ("cpu_millis", "memory_bytes"):
        requests = [getattr(each.requests, field) for each in sources]
        limits = [getattr(each.limits, field) for each in sources]
        expected = next((value for value in requests if value is not None), 0)
        assert getattr(shape.requests, field) == expected
        assert getattr(shape.limits, field) == next((v for v in limits if v is not None), None)


@given(RESOURCES)
def test_limits_given_alone_are_reserved(declared: Resources) -> None:
    shape = _resolve(Resources(limits=declared.limits))
    assert shape.requests.cpu_millis == (declared.limits.cpu_millis or 0)
    assert shape.requests.memory_bytes == (declared.limits.memory_bytes or 0)


def test_two_agents_of_two_cpus_do_not_fit_three() -> None:
    need = _resolve(Resources(limits=CPU)).requests
    assert beyond_cap(need, Cap(cpu_millis=3000), "the") is None
    twice = Need(2 * need.cpu_millis, need.memory_bytes)
    assert beyond_cap(twice, Cap(cpu_millis=3000), "the")


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (NOTHING, True),
        (Resources(BOTH, BOTH), True),
        (Resources(requests=CPU), True),
        (Resources(limits=MEMORY), True),
        (Resources(limits=Amount(cpu_millis=1999)), False),
        (Resources(BOTH, Amount(2001, 1024)), False),
        (Resources(Amount(1999, 1024), BOTH), False),
    ],
)
def test_a_warm_agent_fits_only_exactly_what_the_job_declares(
    job: Resources, expected: bool
) -> None:
    assert same_shape(job, Shape(Need(2000, 1024), BOTH)) is expected


def test_both_sides_of_a_warm_agent_count() -> None:
    unlimited = Shape(Need(2000, 1024))
    assert not same_shape(Resources(requests=BOTH), unlimited)
    assert not same_shape(Resources(limits=BOTH), unlimited)


@given(RESOURCES)
def test_a_shape_that_is_not_known_serves_nobody(job: Resources) -> None:
    assert not same_shape(job, None)


@given(RESOURCES, RESOURCES, RESOURCES)
def test_an_agent_made_for_a_job_has_its_shape(
    job: Resources, own: Resources, defaults: Resources
) -> None:
    assert same_shape(job, _resolve(job, own, defaults))


@pytest.mark.parametrize(
    ("cap", "told"),
    [
        (Cap(), None),
        (Cap(2000, 1024), None),
        (Cap(cpu_millis=1999), "2 CPUs are above the cap of 1.999"),
        (Cap(memory_bytes=1023), "1Ki of memory is above the cap of 0.9990234375Ki"),
    ],
)
def test_what_is_above_a_cap_is_told(cap: Cap, told: str | None) -> None:
    assert beyond_cap(Need(2000, 1024), cap, "the") == told


def test_every_cap_that_applies_is_looked_at() -> None:
    pooled = scaler("s", ["x"], machine_pool="box")
    pool = MachinePool("box", Cap(cpu_millis=1000))
    tight = Cap(cpu_millis=1000)
    need = Need(2000, 0)
    assert never_fits(need, scaler("s", ["x"], resource_cap=tight), cluster())
    assert never_fits(need, scaler("s", ["x"]), cluster(global_resource_cap=tight))
    assert never_fits(need, pooled, cluster(machine_pools=(pool,)))
    event = scaler("s", ["x"], type=BackendType.EVENT, machine_pool="box")
    assert never_fits(need, event, cluster(machine_pools=(pool,))) is None
    assert never_fits(need, scaler("s", ["x"]), cluster(machine_pools=(pool,))) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, NOTHING),
        ({}, NOTHING),
        ({"cpus": 2, "memory": "1Ki"}, Resources(BOTH, BOTH)),
        ({"cpus": 2}, Resources(CPU, CPU)),
        ({"limits": {"memory": "1k"}}, Resources(limits=MEMORY)),
        ({"requests": {"cpus": 2}, "limits": None}, Resources(requests=CPU)),
        ({"requests": {"cpus": 2}, "limits": {"cpus": 2}}, Resources(CPU, CPU)),
    ],
)
def test_jobs_declare_flat_or_by_side(value: object, expected: Resources) -> None:
    assert parse_resources(value) == expected


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("2g", "write {cpus, memory}"),
        ({"cpu": 2}, "unknown key 'cpu'"),
        ({"requests": {"cpus": 1}, "cpus": 1}, "unknown key 'cpus'"),
        ({"cpus": 0}, "above 0"),
        ({"cpus": "2"}, "write one like 2"),
        ({"memory": "4GB"}, "write a number with a unit"),
        ({"memory": 512}, "a text with a unit"),
        ({"memory": "0m"}, "no memory at all"),
        ({"limits": {"memory": "x"}}, "resources.limits"),
        ({"limits": 5}, "resources.limits"),
        ({"requests": {"cpus": 3}, "limits": {"cpus": 2}}, "requests.cpus is above limits.cpus"),
        (
            {"requests": {"memory": "3g"}, "limits": {"memory": "2g"}},
            "requests.memory is above limits.memory",
        ),
    ],
)
def test_a_job_that_declares_nonsense_is_told_what_to_write(value: object, told: str) -> None:
    with pytest.raises(BadResources, match=told.replace("{", r"\{")):
        parse_resources(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["cpus", "memory", "requests", "limits", "x"]), inner, max_size=3
            )
        ),
        max_leaves=8,
    )
)
def test_whatever_a_job_declares_is_read_or_refused(value: object) -> None:
    try:
        resources = parse_resources(value)
    except BadResources as error:
        told = str(error)
    else:
        told = ""
        assert not above_own_limit(resources)
    assert len(told) < 300
