"""Every address may try so many codes; what it is told lets it come back or give up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kici_scaler.gateway import claims
from kici_scaler.gateway.claims import NotRedeemed
from kici_scaler.gateway.core import Gateway
from kici_scaler.gateway.limits import Buckets, Rate
from kici_scaler.gateway.routes_claims import answer_of
from kici_scaler.service.claim import ClaimFailure, Redeemed
from kici_scaler.store.engine import DatabaseUnreachable

FOUND = Redeemed("agent", ("linux",), "wss://gateway.test", "secret")


class Clock:
    """Time that a test lets pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def gateway(clock: Clock, answer: Callable[[], Redeemed | ClaimFailure]) -> Gateway:
    """As much of a gateway as claims need: two tries at once, one more each second."""

    async def channel(_call: object, *_: object, **__: object) -> Redeemed | ClaimFailure:
        return answer()

    bucket = Buckets(Rate(per_second=1, burst=2), clock)
    made = SimpleNamespace(claims=bucket, runtime=None, threads=SimpleNamespace(channel=channel))
    return cast(Gateway, made)


def redeem(at: Gateway, code: str = "c0de", address: str = "192.0.2.1") -> Redeemed:
    return asyncio.run(claims.redeem(at, code, address))


def refused(at: Gateway, code: str = "c0de", **more: Any) -> NotRedeemed:
    with pytest.raises(NotRedeemed) as problem:
        redeem(at, code, **more)
    return problem.value


def test_an_address_that_tries_too_many_codes_has_to_wait_and_others_do_not() -> None:
    clock = Clock()
    front = gateway(clock, lambda: FOUND)
    assert redeem(front) == redeem(front) == FOUND
    told = refused(front)
    assert told.failure is None
    assert told.retry_after == pytest.approx(1.0)
    assert redeem(front, address="192.0.2.2") == FOUND
    clock.now += 1.0
    assert redeem(front) == FOUND


def test_a_refusal_for_the_rate_is_no_verdict_on_the_code() -> None:
    front = gateway(Clock(), lambda: ClaimFailure.CONSUMED)
    for _ in range(2):
        assert refused(front).failure is ClaimFailure.CONSUMED
    assert str(refused(front)) not in set(ClaimFailure)


@pytest.mark.parametrize("code", ["", "x" * 257])
def test_what_cannot_be_a_code_is_not_even_looked_up(code: str) -> None:
    def never() -> Redeemed:
        raise AssertionError("looked up")

    assert refused(gateway(Clock(), never), code).failure is ClaimFailure.INVALID


def test_a_failure_of_ours_may_pass_and_tells_nothing() -> None:
    def away() -> Redeemed:
        raise DatabaseUnreachable("host db.internal is away")

    told = refused(gateway(Clock(), away))
    assert (str(told), told.failure) == (claims.INTERNAL, None)


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (NotRedeemed(ClaimFailure.INVALID, failure=ClaimFailure.INVALID), 404),
        (NotRedeemed(ClaimFailure.CONSUMED, failure=ClaimFailure.CONSUMED), 409),
        (NotRedeemed(ClaimFailure.EXPIRED, failure=ClaimFailure.EXPIRED), 410),
        (NotRedeemed("too many claims", retry_after=3.2), 429),
        (NotRedeemed(claims.INTERNAL), 503),
    ],
)
def test_each_outcome_has_a_status_of_its_own(problem: NotRedeemed, status: int) -> None:
    answer = answer_of(problem)
    assert answer.status == status
    assert ("Retry-After" in answer.headers) is (problem.failure is None)
