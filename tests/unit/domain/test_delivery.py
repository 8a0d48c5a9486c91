"""What follows a try to tell a target something, and when a provision is gone."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain.delivery import (
    LONGEST_PAUSE_DOWN_SECONDS,
    LONGEST_PAUSE_UP_SECONDS,
    Acted,
    Again,
    Attempt,
    Closed,
    DeliveryKind,
    DeliveryState,
    NotYet,
    Settled,
    Teardown,
    after_attempt,
    attempt_of,
    given_up_as,
    pause_after,
    reached_nobody,
    settle,
)
from kici_scaler.domain.windows import Windows

UP, DOWN = DeliveryKind.SCALE_UP, DeliveryKind.SCALE_DOWN
FAILED = Attempt(Acted.NO, "refused")


@pytest.mark.parametrize(
    ("status", "acted", "final"),
    [
        (200, Acted.YES, False),
        (202, Acted.YES, False),
        (204, Acted.YES, False),
        (301, Acted.NO, True),
        (307, Acted.NO, True),
        (400, Acted.NO, True),
        (401, Acted.NO, True),
        (404, Acted.NO, True),
        (410, Acted.NO, True),
        (408, Acted.PERHAPS, False),
        (409, Acted.PERHAPS, False),
        (425, Acted.NO, False),
        (429, Acted.NO, False),
        (500, Acted.PERHAPS, False),
        (502, Acted.PERHAPS, False),
        (503, Acted.PERHAPS, False),
        (504, Acted.PERHAPS, False),
    ],
)
def test_a_status_says_what_the_target_may_have_done(
    status: int, acted: Acted, final: bool
) -> None:
    attempt = attempt_of(status)
    assert (attempt.acted, attempt.final, attempt.status) == (acted, final, status)
    assert (attempt.why == "") is (acted is Acted.YES)


@given(st.integers(100, 599))
def test_every_status_means_something_and_only_2xx_is_success(status: int) -> None:
    assert (attempt_of(status).acted is Acted.YES) is (200 <= status < 300)


def _after(kind: DeliveryKind, attempt: Attempt, **more: object) -> Again | Closed:
    given: dict[str, object] = {
        "attempts": 1,
        "may_have_acted": attempt.acted is not Acted.NO,
        "seconds_left": 100.0,
        "chance": 0.0,
        **more,
    }
    return after_attempt(kind, attempt, **given)  # type: ignore[arg-type]  # given by name


@pytest.mark.parametrize("kind", [UP, DOWN])
def test_an_answer_closes_a_delivery(kind: DeliveryKind) -> None:
    assert _after(kind, Attempt(Acted.YES)) == Closed(DeliveryState.DONE)


@pytest.mark.parametrize("kind", [UP, DOWN])
def test_a_failed_try_is_repeated_after_a_pause(kind: DeliveryKind) -> None:
    assert _after(kind, FAILED) == Again(1.0)


def test_a_final_refusal_of_a_scale_up_owes_nothing() -> None:
    assert _after(UP, replace(FAILED, final=True)) == Closed(DeliveryState.NOT_DONE)


def test_a_final_refusal_after_a_try_that_may_have_worked_owes_a_scale_down() -> None:
    refused = replace(FAILED, final=True)
    assert _after(UP, refused, may_have_acted=True) == Closed(DeliveryState.UNKNOWN)


def test_a_scale_down_is_owed_until_it_is_answered() -> None:
    for attempt in (FAILED, replace(FAILED, final=True), Attempt(Acted.PERHAPS)):
        for attempts in (1, 10, 10_000):
            assert isinstance(_after(DOWN, attempt, attempts=attempts, seconds_left=0.0), Again)


@pytest.mark.parametrize(("left", "closed"), [(3.0, True), (3.1, False)])
def test_a_scale_up_is_given_up_when_its_next_try_would_come_too_late(
    left: float, closed: bool
) -> None:
    found = _after(UP, FAILED, seconds_left=left)
    assert isinstance(found, Closed) is closed


def test_no_deadline_counts_while_nobody_watches() -> None:
    assert isinstance(_after(UP, FAILED, attempts=50, seconds_left=None), Again)


def test_a_target_that_names_a_pause_gets_it_within_bounds() -> None:
    busy = Attempt(Acted.NO, "busy", retry_after=7.0)
    assert _after(UP, busy) == Again(7.0)
    forever = replace(busy, retry_after=1e9)
    assert _after(DOWN, forever) == Again(LONGEST_PAUSE_DOWN_SECONDS)


@given(st.sampled_from([UP, DOWN]), st.integers(1, 10_000), st.floats(0, 1))
def test_pauses_grow_stay_bounded_and_are_spread(
    kind: DeliveryKind, attempts: int, chance: float
) -> None:
    longest = LONGEST_PAUSE_UP_SECONDS if kind is UP else LONGEST_PAUSE_DOWN_SECONDS
    pause = pause_after(kind, attempts, chance)
    whole = pause_after(kind, attempts, 0.0)
    assert whole / 2 <= pause <= whole <= longest
    assert whole <= pause_after(kind, attempts + 1, 0.0)


def test_a_provision_reached_nobody_when_every_target_certainly_did_nothing() -> None:
    over = [DeliveryState.DONE, DeliveryState.NOT_DONE, DeliveryState.UNKNOWN]
    for states in itertools.product([*over, DeliveryState.PENDING], repeat=2):
        assert reached_nobody(states) is (set(states) == {DeliveryState.NOT_DONE})


def test_what_is_given_up_owes_something_only_if_it_may_have_been_acted_on() -> None:
    assert given_up_as(False) is DeliveryState.NOT_DONE
    assert given_up_as(True) is DeliveryState.UNKNOWN


WINDOWS = Windows(teardown_grace_seconds=60, reattempt_interval_seconds=600)
ANSWERED = Teardown(unanswered=0, since_begun=1.0, since_answered=0.5, connected=False, told=False)


def test_a_provision_is_gone_once_its_targets_answered_and_its_agent_left() -> None:
    assert settle(ANSWERED, WINDOWS) is Settled.GONE


def test_a_provision_that_nobody_was_reached_for_is_gone_at_once() -> None:
    assert settle(replace(ANSWERED, since_answered=None), WINDOWS) is Settled.GONE


@given(
    st.builds(
        Teardown,
        unanswered=st.integers(0, 3),
        since_begun=st.floats(0, 1e5),
        since_answered=st.none() | st.floats(0, 1e5),
        connected=st.booleans(),
        told=st.booleans(),
    )
)
def test_nothing_is_gone_while_a_target_or_the_agent_says_otherwise(teardown: Teardown) -> None:
    found = settle(teardown, WINDOWS)
    assert (found is Settled.GONE) is (teardown.unanswered == 0 and not teardown.connected)
    if isinstance(found, NotYet):
        assert 0 < found.seconds <= 60
        assert not (found.tell and teardown.told)
        assert not (found.repeat and teardown.unanswered)
        assert teardown.connected or not (found.tell or found.repeat)


@pytest.mark.parametrize(("since", "tell"), [(59.0, False), (60.0, True)])
def test_an_agent_that_stays_is_told_to_go_after_the_grace(since: float, tell: bool) -> None:
    found = settle(replace(ANSWERED, connected=True, since_begun=since), WINDOWS)
    assert isinstance(found, NotYet)
    assert found.tell is tell


def test_an_agent_is_told_once() -> None:
    found = settle(replace(ANSWERED, connected=True, since_begun=500.0, told=True), WINDOWS)
    assert isinstance(found, NotYet)
    assert not found.tell


@pytest.mark.parametrize(("since", "repeat"), [(599.0, False), (600.0, True)])
def test_a_scale_down_without_effect_is_repeated_at_the_interval(
    since: float, repeat: bool
) -> None:
    stayed = replace(ANSWERED, connected=True, told=True, since_begun=700.0, since_answered=since)
    found = settle(stayed, WINDOWS)
    assert isinstance(found, NotYet)
    assert found.repeat is repeat


def test_a_repeat_waits_for_the_answer_to_the_one_before() -> None:
    stayed = replace(
        ANSWERED, unanswered=1, connected=True, told=True, since_begun=9e3, since_answered=8e3
    )
    found = settle(stayed, WINDOWS)
    assert isinstance(found, NotYet)
    assert not found.repeat
