"""What changes between the look for a ready agent and the gift, or during it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import Engine, event, text

from kici_scaler.domain.request import Result
from kici_scaler.service import admit, serve_ready
from kici_scaler.service import request as requests
from kici_scaler.service.ports import NoHints, Patience, Turn
from kici_scaler.service.request_body import ScaleRequestBody, parse_request
from kici_scaler.store import ready_jobs, request_ends
from kici_scaler.store.engine import Contended, DatabaseUnreachable, make_engine
from tests.integration.warm.site import PAYLOAD, Site, label_set, scaler
from tests.support.waiting import eventually, free_port

GATE = 77
"""An advisory lock at which the gift stands still after its snapshot was taken."""


def _ready(site: Site, size: int = 2) -> list[str]:
    site.configure(scaler("a", label_set("linux"), size=size), scaler("b", label_set("arm")))
    site.settle()
    return site.idle()


def _bodies(*jobs: str) -> list[ScaleRequestBody]:
    return [
        parse_request({"jobId": job, "runId": "run", "labels": ["linux"], "payload": PAYLOAD})
        for job in jobs
    ]


@pytest.fixture
def away() -> Iterator[Engine]:
    """Of a database that refuses every session."""
    engine = make_engine(f"postgresql+psycopg2://x@127.0.0.1:{free_port()}/x", application="away")
    yield engine
    engine.dispose()


@dataclass
class _Busy:
    """A mutex that somebody has."""

    @contextmanager
    def held(self, patience: Patience = Patience.AT_ONCE) -> Iterator[Turn]:
        yield Turn(False)


@pytest.mark.parametrize("may_leave", [False, True])
def test_a_database_that_is_away_is_asked_once(
    site: Site, away: Engine, *, may_leave: bool
) -> None:
    tries: list[object] = []
    event.listen(away, "do_connect", lambda *_: tries.append(1))
    runtime = replace(site.runtime, engine=away, mutex=_Busy())
    with pytest.raises(DatabaseUnreachable):
        requests.submit(runtime, _bodies("job"), may_leave=may_leave)
    assert len(tries) == 1


def test_what_was_stored_beside_a_contended_job_is_found_when_it_is_asked_for_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, free = _ready(site)
    monkeypatch.setattr(admit, "PASS_SECONDS", 0.5)
    with site.rows.begin() as other:
        other.execute(text("SELECT FROM spawns WHERE agent_id = :id FOR UPDATE"), {"id": taken})
        request_ends.cancel(other, job_id="a", reason="called off")
        with pytest.raises(Contended):
            requests.submit(site.runtime, _bodies("a", "b"))
    answers = requests.submit(site.runtime, _bodies("a", "b"))
    assert [each.result for each in answers] == [Result.SKIPPED, Result.READY]
    assert answers[1].agent_id == free


class _Hints(NoHints):
    """Counts the passes over the pools that were wished for."""

    def __init__(self) -> None:
        self.fills = 0

    def fill(self, *, soon: bool = False) -> None:
        self.fills += 1


def test_a_job_that_is_known_stirs_no_pools(site: Site) -> None:
    _ready(site)
    hints = _Hints()
    site.runtime = replace(site.runtime, hints=hints)
    for _ in range(3):
        site.request("linux", job="same")
    assert hints.fills == 1, "only the first took an agent"


def test_a_request_is_decided_after_it_came(site: Site) -> None:
    _ready(site)
    assert site.request("linux", job="job").result is Result.READY
    (row,) = site.rows.all("SELECT decided_at - enqueued_at AS took FROM scale_requests")
    assert row.took.total_seconds() >= 0


def test_who_waits_for_the_same_job_keeps_no_agent_from_others(site: Site) -> None:
    ready = _ready(site)
    with ThreadPoolExecutor(1) as pool:
        with site.rows.begin() as other:
            request_ends.cancel(other, job_id="a", reason="called off")
            answers = pool.submit(requests.submit, site.runtime, _bodies("a"))
            site.rows.wait_until_blocked()
            free = "SELECT agent_id FROM agents FOR NO KEY UPDATE SKIP LOCKED"
            eventually(lambda: {row.agent_id for row in site.rows.all(free)} == set(ready))
            assert not answers.done()
        assert [each.result for each in answers.result(10)] == [Result.SKIPPED]


_TAKEN = "job_id = 'other', run_id = 'run'"
_ENDING = "state = 'destroying', destroy_reason = 'shutdown', destroying_at = clock_timestamp()"
CHANGES = {
    "pushed": ("spawns SET due_at = clock_timestamp()", True),
    "taken": (f"spawns SET due_at = clock_timestamp(), {_TAKEN}", False),
    "ending": (f"spawns SET due_at = clock_timestamp(), {_ENDING}", False),
    "absent": ("agents SET unseen_since = clock_timestamp()", False),
    "moved": ("agents SET gateway = 'gw-2'", True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_committed_after_the_snapshot_counts(
    site: Site, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    agent, *_ = _ready(site, 1)
    site.rows.gateway("gw-2")
    site.rows.request("other", labels=["arm"], routed_scaler="b")
    changed, given = CHANGES[change]
    gate = f"CAST(pg_advisory_xact_lock({GATE}) AS text) AS gate"
    gated = ready_jobs._GIVE.replace("SELECT w.*, now.moment", f"SELECT w.*, {gate}, now.moment")
    gated = gated.replace(f"'{ready_jobs._PATIENCE}'", "'20s'")
    monkeypatch.setattr(ready_jobs, "_GIVE", gated)
    rows = [each.to_row() for each in _bodies("job")]
    with ThreadPoolExecutor(1) as pool:
        with site.rows.begin() as other:
            other.execute(text(f"SELECT pg_advisory_xact_lock({GATE})"))
            served = pool.submit(serve_ready.serve, site.runtime, rows)
            eventually(
                lambda: site.rows.all(
                    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                )
            )
            other.execute(text(f"UPDATE {changed} WHERE agent_id = :id"), {"id": agent})
        got = served.result(10)
    assert bool(got) == given
    stored = site.rows.all("SELECT state FROM scale_requests WHERE job_id = 'job'")
    assert [row.state for row in stored] == (["assigned"] if given else [])
    holds = site.rows.get("spawns", agent)["job_id"] == "job"
    assert holds == given
