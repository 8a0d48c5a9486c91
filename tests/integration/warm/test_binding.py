"""A job that a ready agent can have gets it, and no other job does."""

from __future__ import annotations

from kici_scaler.domain.request import RequestState, Result
from tests.integration.warm.site import Site, label_set, scaler


def test_a_matching_job_gets_the_oldest_ready_agent_at_once(site: Site) -> None:
    site.configure(scaler("a", label_set("linux"), size=3))
    site.settle()
    oldest, *_ = site.idle()

    answer = site.request("linux")

    assert (answer.result, answer.agent_id) == (Result.READY, oldest)
    assert answer.state is RequestState.ASSIGNED
    assert site.counted()["hit"] == 1
