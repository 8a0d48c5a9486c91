"""A ready agent is given away without the section, and never past those who come first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from string import ascii_lowercase

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from kici_scaler.domain.request import Result
from kici_scaler.domain.routing import RoutingTable
from kici_scaler.domain.scalers import Cluster
from kici_scaler.service import admit, revisions, serve_ready
from kici_scaler.service import request as requests
from kici_scaler.service.request_body import parse_request
from kici_scaler.store import section
from kici_scaler.store.engine import make_engine
from tests.integration.warm.site import PAYLOAD, Site, label_set, scaler
from tests.support.tcp_proxy import CutReply, CutRequest, TcpProxy, Treatment


def _ready(site: Site, size: int = 2) -> list[str]:
    site.configure(scaler("a", label_set("linux"), size=size), scaler("b", label_set("arm")))
    site.settle()
    return site.idle()


@pytest.fixture
def proxy(site: Site) -> Iterator[TcpProxy]:
    """Between the site's use cases and the database; the site's rows go straight."""
    url = site.rows.engine.url
    assert url.host is not None
    assert url.port is not None
    with TcpProxy((url.host, url.port)) as made:
        through = make_url(url).set(host=made.host, port=made.port)
        engine = make_engine(through.render_as_string(hide_password=False), application="far")
        site.runtime = replace(site.runtime, engine=engine)
        yield made
        engine.dispose()


def test_a_ready_agent_is_given_away_while_another_decides(site: Site) -> None:
    oldest, _ = _ready(site)
    with site.rows.begin() as other:
        section.enter(other)
        answer = site.request("linux")
    assert (answer.result, answer.agent_id) == (Result.READY, oldest)
    assert site.counted()["hit"] == 1


@pytest.mark.parametrize("behind", [None, "a"])
def test_who_waits_for_such_an_agent_comes_first(site: Site, behind: str | None) -> None:
    (agent,) = _ready(site, size=1)
    site.rows.request("first", labels=["linux"], routed_scaler=behind)
    site.rows.shift("scale_requests", "first", enqueued_at=-1)
    site.request("linux", job="second")
    assert site.rows.get("spawns", agent)["job_id"] == "first"


def test_what_is_being_decided_at_this_moment_keeps_nobody_from_a_ready_agent(site: Site) -> None:
    (agent,) = _ready(site, size=1)
    site.rows.request("first", labels=["windows"], routed_scaler=None)
    site.request("linux", job="second")
    assert site.rows.get("spawns", agent)["job_id"] == "second"
    assert site.rows.get("scale_requests", "first")["decided_at"] is None, "no pass was needed"


def test_who_waits_for_another_scaler_is_in_nobodys_way(site: Site) -> None:
    _ready(site)
    site.rows.request("other", labels=["arm"], routed_scaler="b")
    with site.rows.begin() as other:
        section.enter(other)
        assert site.request("linux").result is Result.READY


def test_one_that_gets_none_leaves_all_of_them_to_the_section(site: Site) -> None:
    _ready(site, size=1)
    bodies = [
        parse_request({"jobId": job, "runId": "run", "labels": ["linux"], "payload": PAYLOAD})
        for job in ("a", "b")
    ]
    assert serve_ready.serve(site.runtime, [each.to_row() for each in bodies]) == {}
    assert site.rows.count("scale_requests") == 0
    answers = requests.submit(site.runtime, bodies)
    assert [each.result for each in answers] == [Result.READY, Result.SPAWNING]


def test_who_loses_its_agent_to_another_is_decided_like_everybody_else(site: Site) -> None:
    taken, free = _ready(site)
    bodies = [
        parse_request({"jobId": job, "runId": "run", "labels": ["linux"], "payload": PAYLOAD})
        for job in ("a", "b")
    ]
    rows = [each.to_row() for each in bodies]
    with site.rows.begin() as other:
        other.execute(text("SELECT FROM spawns WHERE agent_id = :id FOR UPDATE"), {"id": taken})
        (served,) = serve_ready.serve(site.runtime, rows).values()
        assert (served.job_id, served.agent_id) == ("b", free)
        assert site.rows.count("scale_requests") == 1, "of the other nothing was stored"
    answers = requests.submit(site.runtime, bodies)
    assert [each.agent_id for each in answers] == [taken, free]
    assert site.counted()["hit"] == 2


def test_a_job_that_came_by_another_way_meanwhile_takes_no_second_agent(site: Site) -> None:
    _ready(site)
    body = {"jobId": "same", "runId": "run", "labels": ["linux"], "payload": PAYLOAD}
    rows = [parse_request(body).to_row()]
    assert serve_ready.serve(site.runtime, rows)
    assert not serve_ready.serve(site.runtime, rows)
    assert len(site.idle()) == 1


def test_a_job_asked_for_again_keeps_its_agent_and_takes_no_other(site: Site) -> None:
    first, second = _ready(site)
    answers = {site.request("linux", job="same").agent_id for _ in range(3)}
    assert answers == {first}
    assert site.idle() == [second]


def test_a_job_called_off_before_it_came_takes_no_agent(site: Site) -> None:
    ready = _ready(site)
    requests.cancel(site.runtime, "gone")
    assert site.request("linux", job="gone").result is Result.SKIPPED
    assert site.idle() == ready


def test_pools_that_came_with_a_reload_serve_at_once(site: Site) -> None:
    site.configure(scaler("a", label_set("linux")))
    site.request("arm")
    _ready(site, size=2)
    stale = RoutingTable.build(Cluster(), {})
    revisions._last_tables.keep(revisions.database_of(site.runtime.engine), stale)
    assert site.request("linux").result is Result.READY
    with site.rows.begin() as other:
        section.enter(other)
        assert site.request("linux").result is Result.READY


GIFT = b"FROM free JOIN stored"
"""Only the statement that gives a new job a ready agent says so."""


@pytest.mark.parametrize("broken", [CutReply(GIFT), CutRequest(GIFT)])
def test_a_gift_nobody_heard_of_gives_one_agent(
    site: Site, broken: Treatment, proxy: TcpProxy
) -> None:
    ready = _ready(site)
    site.request("linux")
    proxy.requests = broken
    answer = site.request("linux")
    assert (answer.result, answer.agent_id) == (Result.READY, ready[1])
    assert site.counted()["hit"] == 2


def test_jobs_that_come_at_once_get_an_agent_each_in_many_rounds(site: Site) -> None:
    for round_number in range(20):
        ready = _ready(site, size=6)
        jobs = [f"{round_number}-{number}" for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda job: site.request("linux", job=job), jobs))
        admit.run_pass(site.runtime)
        given = site.rows.all("SELECT agent_id, job_id FROM spawns WHERE job_id IS NOT NULL")
        assert sorted(row.job_id for row in given) == sorted(jobs)
        assert {row.agent_id for row in given} >= set(ready)
        for job in jobs:
            requests.cancel(site.runtime, job)
        site.settle()


def test_labels_may_be_many_and_long(site: Site) -> None:
    noise = random.Random(7)
    labels = ["".join(noise.choices(ascii_lowercase, k=60)) for _ in range(32)]
    site.configure(scaler("a", label_set(*labels), size=1))
    site.settle()
    assert site.request(*labels[:3]).result is Result.READY
