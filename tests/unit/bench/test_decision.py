"""The measured decisions are real ones."""

from __future__ import annotations

from collections import Counter

import pytest

from bench import decision, decision_admission
from kici_scaler.domain.admission import Admit, Refuse, decide


def test_every_job_of_the_measurement_is_decided_with_a_reason() -> None:
    decided = decide(decision.jobs(), decision.situation())
    refused = [each for each in decided if isinstance(each, Refuse)]
    assert len(decided) == decision.JOBS
    assert 0 < len(refused) < decision.JOBS
    assert all(each.reason for each in refused)


def test_the_jobs_of_the_measurement_differ() -> None:
    asked = {(each.labels, each.exclude, each.declared) for each in decision.jobs()}
    assert len(asked) > decision.JOBS / 2


@pytest.mark.parametrize("machines", decision_admission.MACHINES)
def test_contended_decisions_admit_some_and_give_several_reasons(machines: int) -> None:
    decided = decide(decision_admission.requests(), decision_admission.situation(machines))
    codes = Counter(each.code for each in decided if isinstance(each, Refuse))
    assert any(isinstance(each, Admit) for each in decided)
    assert len(codes) >= 3
