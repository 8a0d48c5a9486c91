"""Live settings: bounds, units, names, and which values hold together."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain import knobs
from kici_scaler.domain.knobs import KNOBS, Knob, Unit
from kici_scaler.domain.windows import Windows

KEYS = st.sampled_from([knob.key for knob in KNOBS])
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def settings_within_bounds(draw: st.DrawFn) -> dict[str, float]:
    """Some knobs turned to any place that each allows by itself."""
    turned = draw(st.sets(st.sampled_from(KNOBS), max_size=6))
    return {
        knob.key: draw(
            st.integers(int(knob.floor), int(knob.ceiling)).map(float)
            if knob.unit is Unit.COUNT
            else st.floats(knob.floor, knob.ceiling)
        )
        for knob in turned
    }


def test_every_window_has_a_knob_and_every_knob_a_window() -> None:
    assert [knob.key for knob in KNOBS] == [field.name for field in fields(Windows)]


def test_no_name_means_two_things() -> None:
    names = [name for knob in KNOBS for name in (knob.key, knob.reference) if name]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.key)
def test_the_default_is_within_the_bounds(knob: Knob) -> None:
    assert knob.problem(knob.default) is None
    assert knob.default == getattr(Windows(), knob.key)


def test_the_defaults_hold_together() -> None:
    assert not list(knobs.contradictions(knobs.effective({})))


@pytest.mark.parametrize(
    ("reference", "floor_millis"),
    [
        ("scaler_spawn_timeout_ms", 1_000),
        ("scaler_reap_stranded_timeout_ms", 60_000),
        ("scaler_reap_reattempt_interval_ms", 60_000),
        ("scaler_claim_retention_ms", 0),
        ("scaler_provision_backoff_base_ms", 1_000),
        ("scaler_provision_backoff_max_ms", 1_000),
        ("reroute_flap_grace_ms", 1_000),
        ("agent_token_ttl_ms", 1_000),
        ("scaler_provision_max_consecutive_failures", 1),
    ],
)
def test_names_and_floors_of_the_reference_are_understood(
    reference: str, floor_millis: int
) -> None:
    knob = knobs.find(reference)
    assert knob is not None
    assert knob.problem(knobs.to_ours(reference, floor_millis)) is None
    assert knob.problem(knobs.to_ours(reference, floor_millis - 1)) is not None


def test_an_organisation_may_only_have_its_own_spawn_timeout() -> None:
    assert [knob.key for knob in KNOBS if knob.per_org] == ["spawn_timeout_seconds"]


def test_a_name_that_nobody_gave_is_unknown() -> None:
    assert knobs.find("no_such_setting") is None


@given(KEYS, NUMBERS)
def test_a_value_is_accepted_exactly_within_its_bounds(key: str, value: float) -> None:
    knob = knobs.find(key)
    assert knob is not None
    fits = knob.floor <= value <= knob.ceiling
    is_whole = fits and (knob.unit is not Unit.COUNT or float(value).is_integer())
    problem = knob.problem(value)
    assert (problem is None) is is_whole
    assert problem is None or key in problem


@given(KEYS)
def test_our_names_take_our_units(key: str) -> None:
    assert knobs.to_ours(key, 5.0) == 5.0


@given(settings_within_bounds())
def test_contradictions_are_exactly_those_between_effective_values(
    stored: dict[str, float],
) -> None:
    values = knobs.effective(stored)
    broken = {
        "backoff": values["backoff_max_seconds"] < values["backoff_base_seconds"],
        "return": values["flap_grace_seconds"] < 2 * values["gateway_stale_seconds"],
        "stranded": values["stranded_timeout_seconds"] < values["flap_grace_seconds"],
    }
    assert len(list(knobs.contradictions(values))) == sum(broken.values())


@given(settings_within_bounds())
def test_whatever_the_knobs_allow_counts_as_it_was_set(stored: dict[str, float]) -> None:
    assert Windows.of(stored) == Windows(**knobs.effective(stored))


@pytest.mark.parametrize(
    ("value", "text"), [(30.0, "30"), (0.5, "0.5"), (2_592_000.0, "2592000"), (-1, "-1")]
)
def test_values_are_written_as_a_person_writes_them(value: float, text: str) -> None:
    assert knobs.written(value) == text
