"""What processes count reaches the database once, through outages and restarts."""

from __future__ import annotations

import multiprocessing
import signal

import pytest
from sqlalchemy import Engine, create_engine

from kici_scaler.metrics import TALLY, Tally, count, declared
from kici_scaler.service.bookkeeper import Bookkeeper
from kici_scaler.store import counts
from kici_scaler.store.counts import Count
from kici_scaler.store.engine import CommitUnknown, make_engine
from tests.support.rows import Rows
from tests.support.waiting import eventually, free_port

REFUSALS = declared.SPAWN_REFUSALS
FORK = multiprocessing.get_context("fork")


def _stored(rows: Rows) -> float:
    return float(sum(each.n for each in rows.call(counts.read) if each.name == REFUSALS.name))


def test_what_was_counted_is_stored_after_a_while_and_at_the_end(
    rows: Rows, engine: Engine
) -> None:
    tally = Tally()
    with Bookkeeper(engine, tally, pause_seconds=0.02):
        tally.add(REFUSALS, n=2)
        eventually(lambda: _stored(rows) == 2)
        tally.add(REFUSALS)
    assert _stored(rows) == 3


def test_nothing_counted_is_no_transaction(rows: Rows) -> None:
    nowhere = create_engine(f"postgresql+psycopg2://nobody@127.0.0.1:{free_port()}/nothing")
    Bookkeeper(nowhere, Tally()).store()


def test_counts_are_kept_while_the_database_is_away(rows: Rows, engine: Engine) -> None:
    away = make_engine(
        f"postgresql+psycopg2://nobody@127.0.0.1:{free_port()}/nothing", application="test"
    )
    tally = Tally()
    tally.add(REFUSALS, n=5)
    Bookkeeper(away, tally).store()
    assert _stored(rows) == 0
    tally.add(REFUSALS)
    Bookkeeper(engine, tally).store()
    assert _stored(rows) == 6


def test_counts_of_an_unknown_commit_are_never_stored_twice(
    rows: Rows, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = counts.add

    def add_and_lose_the_answer(connection: object, added: list[Count]) -> None:
        whole(connection, added)  # type: ignore[arg-type]  # as it was handed in
        connection.commit()  # type: ignore[attr-defined]  # as it was handed in
        raise CommitUnknown("the connection broke")

    tally = Tally()
    tally.add(REFUSALS)
    monkeypatch.setattr(counts, "add", add_and_lose_the_answer)
    Bookkeeper(engine, tally).store()
    monkeypatch.undo()
    Bookkeeper(engine, tally).store()
    assert _stored(rows) == 1


def _count_and_end(url: str, times: int) -> None:
    with Bookkeeper(make_engine(url, application="test", pool_size=1)):
        for _ in range(times):
            count(REFUSALS)


def _count_and_stay(url: str) -> None:
    with Bookkeeper(make_engine(url, application="test", pool_size=1), pause_seconds=0.02):
        count(REFUSALS, n=7)
        signal.pause()


def test_many_processes_add_to_the_same_counter(rows: Rows, house_url: str) -> None:
    """Forked, as workers are; what the parent had counted stays the parent's."""
    count(REFUSALS, n=1_000_000)
    workers = [FORK.Process(target=_count_and_end, args=(house_url, n)) for n in (10, 20, 30, 40)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    TALLY.take()
    assert [each.exitcode for each in workers] == [0] * 4
    assert _stored(rows) == 100


def test_a_process_that_is_killed_takes_nothing_back_that_was_stored(
    rows: Rows, house_url: str
) -> None:
    worker = FORK.Process(target=_count_and_stay, args=(house_url,))
    worker.start()
    try:
        eventually(lambda: _stored(rows) == 7)
    finally:
        worker.kill()
        worker.join()
    assert _stored(rows) == 7
