"""The pure decision, by processor time: nothing in it waits."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import decision, decision_admission
from bench.measure import Distribution, Unit, timed_by
from bench.results import Measured, Reach
from kici_scaler.domain.admission import Situation, decide
from kici_scaler.domain.request import Waiting

REACH = Reach(0.003)


def figures() -> Iterator[Measured]:
    """500 requests that differ, 50 scalers of 4 label sets: caps free, and caps contended."""
    yield _measured(
        "decision",
        "500 requests, 50 scalers of 4 label sets, a fifth of the label sets gated",
        decision.jobs(),
        decision.situation(),
    )
    for machines in decision_admission.MACHINES:
        yield _measured(
            f"decision, contended on {machines}",
            f"the same against full caps and pools on {machines} machines, with every reason",
            decision_admission.requests(),
            decision_admission.situation(machines),
        )


def _measured(name: str, what: str, waiting: list[Waiting], situation: Situation) -> Measured:
    (taken,) = timed_by(
        (time.process_time,),
        lambda _: decide(waiting, situation),
        prepare=lambda: None,
        repeats=200,
        warm_up=10,
    )
    return Measured(name, what, Unit.SECONDS, Distribution.of(taken), reach=REACH)
