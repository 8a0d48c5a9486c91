"""The measured decision is a real one."""

from __future__ import annotations

from bench.decision import JOBS, decision, jobs


def test_every_job_of_the_measurement_is_decided_with_a_reason() -> None:
    figures = decision(repeats=2)
    admitted, refused = figures["admitted"], figures["refused_with_reason"]
    assert isinstance(admitted, int)
    assert isinstance(refused, int)
    assert admitted > 0
    assert refused > 0
    assert admitted + refused == JOBS


def test_the_jobs_of_the_measurement_differ() -> None:
    asked = {(each.labels, each.exclude, each.declared) for each in jobs()}
    assert len(asked) > JOBS / 2
