"""Token buckets: what may be taken at once, and what has to wait."""

from __future__ import annotations

import pytest

from kici_scaler.gateway import limits
from kici_scaler.gateway.limits import Buckets, Rate, TokenBucket

RATE = Rate(per_second=10, burst=20)


class Clock:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_free_and_what_follows_waits() -> None:
    bucket = TokenBucket(RATE, 0.0)
    assert [bucket.take(1, 0.0) for _ in range(20)] == [0.0] * 20
    assert bucket.take(1, 0.0) == pytest.approx(0.1)
    assert bucket.take(4, 0.0) == pytest.approx(0.5)


def test_a_bucket_fills_again_up_to_its_burst() -> None:
    bucket = TokenBucket(RATE, 0.0)
    bucket.take(20, 0.0)
    assert bucket.left(1.0) == pytest.approx(10)
    assert bucket.left(1_000.0) == 20


def test_each_name_has_a_bucket_of_its_own() -> None:
    clock = Clock()
    buckets = Buckets(RATE, clock)
    for _ in range(20):
        assert buckets.wait_for("a") == 0.0
        buckets.take("a")
    assert buckets.wait_for("a") == pytest.approx(0.1)
    assert buckets.wait_for("b") == 0.0
    clock.now += 0.1
    assert buckets.wait_for("a") == pytest.approx(0.0, abs=1e-9)


def test_asking_takes_nothing() -> None:
    buckets = Buckets(Rate(1, 1), Clock())
    assert [buckets.wait_for("a") for _ in range(5)] == [0.0] * 5


def test_the_emptiest_buckets_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_REMEMBERED", 10)
    buckets = Buckets(Rate(1, 2), Clock())
    for _ in range(2):
        buckets.take("guesser")
    for number in range(50):
        buckets.take(f"visitor-{number}")
    assert buckets.wait_for("guesser") > 0
