"""Pauses between restarts grow, are bounded, and start over after a good run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.embedded.restarts import RestartPolicy


def test_pauses_double_up_to_the_longest() -> None:
    policy = RestartPolicy(first=0.5, longest=3.0)
    assert [policy.pause(failures) for failures in (1, 2, 3, 4, 5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_good_run_starts_over() -> None:
    policy = RestartPolicy(stable_after=30.0)
    assert policy.failures_after(7, ready_for=29.9) == 8
    assert policy.failures_after(7, ready_for=30.0) == 1


@given(failures=st.integers(min_value=0, max_value=10**9))
def test_no_number_of_failures_breaks_the_bounds(failures: int) -> None:
    policy = RestartPolicy()
    assert policy.first <= policy.pause(failures) <= policy.longest
