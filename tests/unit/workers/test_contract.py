"""The plain data of the contract."""

from __future__ import annotations

import time

from kici_scaler.domain.scalers import LabelSet
from workers.contract import (
    CAPTURED_LINES,
    Deadline,
    LifecycleEvent,
    LifecycleKind,
    SpawnOrder,
    failure_detail,
)


def test_a_deadline_counts_down_and_never_below_nothing() -> None:
    assert 9 < Deadline.after(10).remaining <= 10
    assert not Deadline.after(10).has_passed
    assert Deadline.after(-1).remaining == 0.0
    assert Deadline.after(-1).has_passed


def test_a_deadline_can_be_tightened_and_not_loosened() -> None:
    whole = Deadline.after(10)

    assert whole.within(1).remaining <= 1
    assert whole.within(60) == whole


def test_a_failure_without_output_is_its_text_alone() -> None:
    assert failure_detail("no such image", ()) == "no such image"


def test_a_failure_carries_the_last_captured_lines() -> None:
    lines = [f"line {number}" for number in range(80)]

    detail = failure_detail("it ended", lines).splitlines()

    assert detail[:2] == ["it ended", "--- captured output ---"]
    assert detail[2:] == lines[-CAPTURED_LINES:]


def test_an_order_never_shows_its_token_or_environment() -> None:
    order = SpawnOrder(
        installation_id="i",
        scaler="pool",
        agent_id="scaler-container-000000000001",
        lease_token=1,
        label_set=LabelSet(0, ("linux",)),
        gateway_url="ws://gateway",
        agent_token="the-token",
        environment={"PASSWORD": "the-password"},
    )

    assert "the-token" not in repr(order)
    assert "the-password" not in repr(order)


def test_an_event_carries_the_moment_it_is_told() -> None:
    told: list[LifecycleEvent] = []
    before = time.time_ns() // 1_000_000
    order = SpawnOrder(
        installation_id="i",
        scaler="pool",
        agent_id="scaler-container-000000000001",
        lease_token=1,
        label_set=LabelSet(0, ("linux",)),
        gateway_url="ws://gateway",
        agent_token="",
        report=told.append,
    )

    order.tell(LifecycleKind.NETWORK, "tap7")

    [event] = told
    assert (event.kind, event.detail) == (LifecycleKind.NETWORK, "tap7")
    assert before <= event.timestamp_ms <= time.time_ns() // 1_000_000
