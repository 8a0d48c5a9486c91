"""Whom agents that no scaler made serve, and what their absence or slowness means."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from kici_scaler.domain.routing import Wanted
from kici_scaler.domain.scalers import Amount, Resources, Role
from kici_scaler.domain.static_agents import (
    Judgement,
    StaticAgent,
    StaticDue,
    StaticStock,
    Verdict,
    judge_static,
    serves,
)
from kici_scaler.domain.windows import Windows

AGENT = StaticAgent("static-1", frozenset({"linux", "gpu"}), frozenset({"gpu"}), free=True)
WINDOWS = Windows()
DUE = StaticDue("static-1", "job", False, False, None, False, "gw-1")


@pytest.mark.parametrize(
    ("wanted", "does"),
    [
        (Wanted.of(["linux", "gpu"]), True),
        (Wanted.of(["gpu"]), True),
        (Wanted.of(["linux"]), False),
        (Wanted.of(["linux", "gpu", "arm"]), False),
        (Wanted.of(["gpu"], exclude=["linux"]), False),
        (Wanted.of(["gpu"], own_image=True), False),
        (Wanted.of(["gpu"], role=Role.BUILDER), False),
        (Wanted.of([]), False),
        (Wanted.of(["gpu"], resources=Resources(Amount(64_000, None), Amount())), True),
    ],
)
def test_labels_and_gate_decide_and_no_size_does(wanted: Wanted, does: bool) -> None:
    assert serves(AGENT, wanted) is does


def test_an_agent_without_a_gate_serves_a_job_without_labels() -> None:
    assert serves(replace(AGENT, gate=frozenset()), Wanted.of([]))


def test_each_agent_is_given_away_once_whatever_the_jobs_ask() -> None:
    stock = StaticStock([AGENT, replace(AGENT, agent_id="static-2"),
                         replace(AGENT, agent_id="static-3", free=False)])  # fmt: skip
    first, second = stock.supply(Wanted.of(["gpu"])), stock.supply(Wanted.of(["gpu", "linux"]))
    assert first is not None
    assert second is not None
    assert [first.take(), second.take(), first.take()] == ["static-1", "static-2", None]


def test_agents_that_are_occupied_are_named_as_why_a_job_waits() -> None:
    supply = StaticStock([replace(AGENT, free=False)]).supply(Wanted.of(["gpu"]))
    assert supply is not None
    assert supply.take() is None
    assert "occupied" in supply.why_not
    assert StaticStock([AGENT]).supply(Wanted.of(["arm"])) is None


def _judged(*, observing: bool = True, in_grace: bool = False, **facts: Any) -> Judgement:
    due = replace(DUE, **facts)
    return judge_static(due, WINDOWS, observing=observing, in_grace=in_grace)


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({}, Verdict.TELL),
        ({"running": True}, Verdict.TELL),
        ({"past_deadline": True}, Verdict.PART),
        ({"running": True, "past_deadline": True}, Verdict.PART),
        ({"seconds_absent": 1.0}, Verdict.KEEP),
        ({"seconds_absent": 1.0, "past_deadline": True}, Verdict.PART),
        ({"seconds_absent": 1.0, "past_deadline": True, "running": True}, Verdict.KEEP),
        ({"seconds_absent": 121.0, "running": True}, Verdict.KEEP),
        ({"seconds_absent": 121.0, "running": True, "adopter_dead": True}, Verdict.PART),
        ({"seconds_absent": 1_801.0, "running": True}, Verdict.PART),
        ({"seconds_absent": math.inf}, Verdict.PART),
        ({"running": True, "cancelled": True}, Verdict.TELL),
        ({"running": True, "cancelled": True, "past_deadline": True}, Verdict.PART),
        (
            {"running": True, "cancelled": True, "past_deadline": True, "seconds_absent": 1.0},
            Verdict.PART,
        ),
    ],
)
def test_a_job_and_its_agent_part_only_for_what_lasted(
    facts: dict[str, Any], verdict: Verdict
) -> None:
    judged = _judged(**facts)
    assert judged.verdict is verdict
    assert bool(judged.why) is (verdict is Verdict.PART)


@pytest.mark.parametrize("seen", [{"observing": False}, {"in_grace": True}])
def test_who_could_not_observe_does_not_judge(seen: dict[str, bool]) -> None:
    absent = _judged(seconds_absent=9_999.0, adopter_dead=True, past_deadline=True, **seen)
    assert absent.verdict is Verdict.KEEP


def test_a_deadline_that_ran_unwatched_is_not_held_against_a_connected_agent() -> None:
    assert _judged(observing=False, past_deadline=True).verdict is Verdict.TELL
