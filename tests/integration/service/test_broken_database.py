"""Answers that are lost, locks that are held, and a database that goes away and returns."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from kici_scaler.domain.request import RequestState, Result
from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.postgres import STOP, EmbeddedPostgres
from kici_scaler.service import admit, request
from kici_scaler.service.answers import Answer
from kici_scaler.service.ports import NoHints
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import migrate, requests, section
from kici_scaler.store.engine import (
    CommitUnknown,
    Contended,
    DatabaseUnreachable,
    make_engine,
    transaction,
)
from tests.integration.service import work
from tests.integration.service.conftest import ALIVE, ONE_PLACE
from tests.integration.service.work import Servers
from tests.support.admissions import History
from tests.support.rows import Rows
from tests.support.servers import running
from tests.support.tcp_proxy import CutReply, CutRequest, TcpProxy
from tests.support.waiting import eventually, free_port

COMMIT = b"COMMIT\x00"
"""As the client sends it; a transaction also begins with READ COMMITTED."""


class _Hints(NoHints):
    """Counts the passes that were wished for."""

    def __init__(self) -> None:
        self.admits = 0

    def admit(self, *, soon: bool = False) -> None:
        self.admits += 1


@pytest.fixture
def hints() -> _Hints:
    return _Hints()


@pytest.fixture
def far(one_place: History, house_url: str, proxy: TcpProxy, hints: _Hints) -> Iterator[Runtime]:
    """A runtime whose connections can be broken."""
    url = make_url(house_url).set(host=proxy.host, port=proxy.port)
    engine = make_engine(url.render_as_string(hide_password=False), application="far")
    yield Runtime(engine=engine, owner="far", hints=hints)
    engine.dispose()


def _submit(runtime: Runtime, *jobs: str, label: str = "roomy") -> list[Answer]:
    return request.submit(runtime, [parse_request(work.body(job, label)) for job in jobs])


def test_a_request_whose_commit_was_answered_too_late_is_read_back(
    far: Runtime, proxy: TcpProxy, one_place: History
) -> None:
    admit.run_pass(far)
    proxy.requests = CutReply(COMMIT)
    (answer,) = _submit(far, "job")
    assert (answer.result, answer.state) == (Result.SPAWNING, RequestState.ASSIGNED)
    assert proxy.counts.cuts == 1
    assert one_place.reservations() == {"job": 1}


def test_a_request_whose_commit_never_came_was_not_stored_and_may_be_repeated(
    far: Runtime, proxy: TcpProxy, rows: Rows, one_place: History
) -> None:
    admit.run_pass(far)
    proxy.requests = CutRequest(COMMIT)
    with pytest.raises(CommitUnknown):
        _submit(far, "job")
    assert rows.count("scale_requests") == 0
    (answer,) = _submit(far, "job")
    assert answer.result is Result.SPAWNING
    assert one_place.reservations() == {"job": 1}


@pytest.mark.parametrize("cut", [CutReply, CutRequest])
def test_a_pass_whose_commit_is_unknown_is_exact_on_the_next(
    far: Runtime, proxy: TcpProxy, rows: Rows, one_place: History, cut: type
) -> None:
    jobs = [rows.request(labels=["roomy"]) for _ in range(5)]
    proxy.requests = cut(COMMIT)
    with pytest.raises(CommitUnknown):
        admit.run_pass(far)
    admit.run_pass(far)
    assert one_place.reservations() == dict.fromkeys(jobs, 1)


def test_a_cancellation_whose_commit_is_unknown_may_be_repeated(
    far: Runtime, proxy: TcpProxy, rows: Rows
) -> None:
    _submit(far, "job")
    proxy.requests = CutReply(COMMIT)
    with pytest.raises(CommitUnknown):
        request.cancel(far, "job")
    assert request.cancel(far, "job") is RequestState.CANCELLED
    assert rows.count("spawns") == 0


def test_every_commit_of_a_burst_may_be_answered_too_late(
    far: Runtime, proxy: TcpProxy, one_place: History
) -> None:
    jobs = [f"job-{number}" for number in range(12)]
    for job in jobs:
        proxy.requests = CutReply(COMMIT)
        bodies = [work.body(job, "roomy")]
        assert work.until_answered(far, bodies)[0].result is Result.SPAWNING
    assert one_place.reservations() == dict.fromkeys(jobs, 1)


def test_while_another_decides_for_too_long_a_request_is_stored_and_queued(
    far: Runtime, rows: Rows, hints: _Hints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admit, "PASS_SECONDS", 0.2)
    with rows.begin() as holder:
        section.enter(holder)
        (answer,) = _submit(far, "job")
        assert (answer.result, answer.state) == (Result.QUEUED, RequestState.WAITING)
        with pytest.raises(Contended):
            admit.run_pass(far)
    assert hints.admits == 1
    assert admit.run_pass(far).admitted == 1


def test_whoever_waited_for_its_turn_decides_for_those_behind_it(
    runtime: Runtime, rows: Rows, one_place: History
) -> None:
    with ThreadPoolExecutor(6) as pool:
        with rows.begin() as holder:
            section.enter(holder)
            asking = [pool.submit(_submit, runtime, f"job-{number}") for number in range(6)]
            rows.wait_until_blocked(6)
        answers = [done.result(20)[0] for done in asking]
    assert {each.result for each in answers} == {Result.SPAWNING}
    transactions = rows.one("SELECT count(DISTINCT xmin::text) FROM spawns")
    assert transactions == 1, "one holder decided for all that were stored by then"


def test_a_job_that_another_is_just_storing_is_waited_for_and_not_for_ever(
    far: Runtime, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admit, "PASS_SECONDS", 0.2)
    with rows.engine.connect() as other:
        row = parse_request(work.body("job", "roomy")).to_row()
        requests.insert(other, [row])
        with pytest.raises(Contended):
            _submit(far, "job", "free")
        other.rollback()
    assert rows.count("scale_requests") == 0
    assert {each.result for each in _submit(far, "job", "free")} == {Result.SPAWNING}


def test_a_row_that_another_keeps_delays_nobody_else(runtime: Runtime, rows: Rows) -> None:
    rows.machine("m1")
    with rows.begin() as holder:
        requests.insert(holder, [parse_request(work.body("x", "roomy")).to_row()])
        assert _submit(runtime, "job")[0].state is RequestState.WAITING


def test_a_database_that_is_away_is_called_unreachable_and_nothing_else(
    far: Runtime, proxy: TcpProxy
) -> None:
    proxy.refuse()
    proxy.drop()
    for call in (
        lambda: _submit(far, "job"),
        lambda: admit.run_pass(far),
        lambda: request.cancel(far, "job"),
    ):
        with pytest.raises(DatabaseUnreachable) as caught:
            call()
        assert not isinstance(caught.value, CommitUnknown)
    proxy.listen()
    assert _submit(far, "job")[0].result is Result.SPAWNING


class _Own:
    """A Postgres of this test's own, which it may stop."""

    def __init__(self, home: Path) -> None:
        self.server = EmbeddedPostgres(home, free_port())
        self.url = self.server.url

    def session(self) -> Any:
        return running(self.server, STOP)


@pytest.fixture
def own() -> Iterator[_Own]:
    home = make_temporary_home("kici-outage-")
    yield _Own(home)
    shutil.rmtree(home)


def _house(url: str, folder: Path) -> tuple[Engine, History]:
    migrate.upgrade(url)
    engine = make_engine(url, application="outage", pool_size=5)
    rows = Rows(engine)
    rows.machine("m1")
    rows.execute(ALIVE)
    history = History(rows)
    history.install()
    history.configure(folder, ONE_PLACE)
    return engine, history


def _submit_all(url: str, jobs: list[str], refusals: list[str]) -> list[str]:
    """Ask until answered, as a dispatcher does; note each refusal by its kind."""
    results = []
    with work.runtime(Servers(url)) as its:
        for job in jobs:
            while True:
                try:
                    (answer,) = _submit(its, job)
                except (DatabaseUnreachable, Contended) as error:
                    refusals.append(type(error).__name__)
                    work.PAUSE.wait(0.05)
                    continue
                results.append(answer.result.value)
                break
    return results


def _nobody_waits(its: Runtime, rows: Rows) -> bool:
    work.run_pass(its)
    return not rows.count("scale_requests", "state = 'waiting'")


@pytest.mark.timeout(400)
def test_a_database_stopped_in_a_burst_refuses_and_is_exact_when_it_returns(
    own: _Own, tmp_path: Path
) -> None:
    jobs = [f"job-{number}" for number in range(90)]
    refusals: list[str] = []
    with ThreadPoolExecutor(6) as pool:
        with own.session():
            own.server.provision()
            engine, history = _house(own.url, tmp_path)
            asking = [
                pool.submit(_submit_all, own.url, jobs[part::3] * 2, refusals)
                for part in (0, 1, 2, 0, 1, 2)
            ]
            eventually(lambda: history.rows.count("spawns") > 5, within=60)
        eventually(lambda: len(refusals) > 10, within=60)
        engine.dispose()
        with own.session():
            results = [result for done in asking for result in done.result(180)]
            assert set(results) <= {"spawning", "queued"}
            with work.runtime(Servers(own.url)) as its:
                eventually(lambda: _nobody_waits(its, history.rows), within=60)
            assert history.reservations() == dict.fromkeys(jobs, 1)
            assert history.violations() == []
            engine.dispose()
    assert set(refusals) <= {"DatabaseUnreachable", "CommitUnknown", "Contended"}
    assert "DatabaseUnreachable" in refusals


def test_a_process_killed_between_its_writes_leaves_nothing_and_blocks_nobody(
    runtime: Runtime, rows: Rows, one_place: History
) -> None:
    """The server ends a transaction whose client is gone: here, by closing its connection."""
    reached, go_on = threading.Event(), threading.Event()

    def die_inside() -> None:
        connection = rows.engine.raw_connection()
        cursor = connection.cursor()
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (section.ADMISSION_LOCK,))
        cursor.execute("INSERT INTO scaler_states (scaler) VALUES ('half')")
        reached.set()
        go_on.wait(10)
        connection.detach()
        connection.close()

    thread = threading.Thread(target=die_inside)
    thread.start()
    reached.wait(10)
    go_on.set()
    thread.join(10)
    with transaction(runtime.engine) as connection:
        section.enter(connection)
    assert rows.count("scaler_states") == 0
    assert _submit(runtime, "job")[0].result is Result.SPAWNING


@pytest.mark.timeout(400)
def test_processes_that_lose_their_connections_all_the_time_admit_exactly(
    processes: ProcessPoolExecutor, one_place: History, house_url: str, proxy: TcpProxy
) -> None:
    url = make_url(house_url).set(host=proxy.host, port=proxy.port)
    servers = Servers(url.render_as_string(hide_password=False))
    jobs = [f"job-{number}" for number in range(24)]
    over = threading.Event()

    def break_connections() -> None:
        """Ever less often, so that a slow machine comes through as well."""
        pause = 0.15
        while not over.wait(pause):
            proxy.drop()
            pause *= 1.03

    breaker = threading.Thread(target=break_connections)
    asking = [
        processes.submit(
            work.submit,
            servers,
            [work.body(job, "roomy") for job in jobs[number::8]],
            seed=number,
            passes=False,
        )
        for number in range(8)
    ]
    breaker.start()
    try:
        answers = [answer for done in asking for answer in done.result(180)]
    finally:
        over.set()
        breaker.join(10)
    assert len(answers) == len(jobs)
    with work.runtime(Servers(house_url)) as its:
        eventually(lambda: _nobody_waits(its, one_place.rows), within=60)
    assert one_place.reservations() == dict.fromkeys(jobs, 1)
