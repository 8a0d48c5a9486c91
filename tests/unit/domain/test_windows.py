"""Windows: the defaults, and what operators stored over them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kici_scaler.domain.windows import Windows, spawn_timeout

REFERENCE_DEFAULTS = {
    "spawn_timeout_seconds": 300,
    "boot_floor_seconds": 300,
    "backoff_base_seconds": 30,
    "backoff_max_seconds": 900,
    "failure_limit": 5,
    "maximum_lifetime_seconds": 86_400,
    "cancel_grace_seconds": 60,
    "ageing_seconds": 30,
}


def test_without_stored_values_the_defaults_are_those_operators_know() -> None:
    windows = Windows.of({})
    assert {name: getattr(windows, name) for name in REFERENCE_DEFAULTS} == REFERENCE_DEFAULTS


@pytest.mark.parametrize("name", [field.name for field in fields(Windows)])
def test_every_window_can_be_set_live(name: str) -> None:
    assert getattr(Windows.of({name: 42}), name) == 42.0


@pytest.mark.parametrize(
    "value", ["60", None, True, False, -1, [], {}, 1e300], ids=lambda value: repr(value)
)
def test_a_value_that_is_no_sensible_number_counts_as_unset(value: object) -> None:
    assert Windows.of({"lease_seconds": value, "spawn_timeout_seconds": value}) == Windows()
    assert spawn_timeout(value) is None


def test_other_settings_are_left_alone() -> None:
    assert Windows.of({"draining": True, "unknown": 3}) == Windows()


@pytest.mark.parametrize(
    ("stored", "used"), [(0, 1), (0.1, 1), (1, 1), (450, 450), (900, 900), (901, 900)]
)
def test_a_spawn_timeout_stays_within_what_a_task_may_take(stored: float, used: float) -> None:
    assert Windows.of({"spawn_timeout_seconds": stored}).spawn_timeout_seconds == used
    assert spawn_timeout(stored) == used


def test_a_lost_hint_is_repeated_before_a_lease_ends_and_grace_is_shorter_than_stranding() -> None:
    windows = Windows()
    assert windows.hint_after_seconds < windows.lease_seconds
    assert windows.flap_grace_seconds < windows.stranded_timeout_seconds
    assert windows.gateway_stale_seconds < windows.flap_grace_seconds
