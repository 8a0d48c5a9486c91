"""Lifecycle events: in order, once, and none missed by a reader that follows their ids."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

from sqlalchemy import Connection

from kici_scaler.store import events
from kici_scaler.store.bulk import sql
from kici_scaler.store.events import EventType, NewEvent
from tests.support.rows import Rows


class _Fails(Exception):
    """Something that a transaction does not survive."""


def _event(agent: str = "a", *, job: str | None = None, detail: str = "") -> NewEvent:
    return NewEvent(EventType.READY, agent, job, None if job is None else "run", detail)


def _begin_writing(connection: Connection) -> None:
    """The transaction gets its number before it records anything."""
    connection.execute(sql("SELECT pg_current_xact_id()"))


def _details(rows: Rows, last: int = 0) -> list[str]:
    return [each.detail for each in rows.call(events.after, last)]


def test_events_come_back_in_the_order_they_were_given(rows: Rows) -> None:
    rows.call(events.record, [_event(detail="1", job="j"), _event(detail="2")])
    rows.call(events.record, [_event(detail="3")])
    first, second, third = rows.call(events.after, 0)
    assert [first.detail, second.detail, third.detail] == ["1", "2", "3"]
    assert first.id < second.id < third.id
    assert (first.type, first.agent_id, first.job_id, first.run_id) == (
        "scaler.ready", "a", "j", "run",
    )  # fmt: skip


def test_nothing_to_record_is_nothing(rows: Rows) -> None:
    rows.call(events.record, [])
    assert rows.call(events.after, 0) == []


def test_a_reader_goes_on_where_it_was_and_reads_so_many_at_once(rows: Rows) -> None:
    rows.call(events.record, [_event(detail=str(number)) for number in range(5)])
    page = rows.call(events.after, 0, limit=2)
    assert [each.detail for each in page] == ["0", "1"]
    assert _details(rows, page[-1].id) == ["2", "3", "4"]


def test_a_reader_may_follow_one_agent_or_one_job(rows: Rows) -> None:
    rows.call(events.record, [_event("a"), _event("b", job="j", detail="b"), _event("a")])
    assert [each.detail for each in rows.call(events.after, 0, agent_id="b")] == ["b"]
    assert [each.detail for each in rows.call(events.after, 0, job_id="j")] == ["b"]


def test_an_open_transaction_hides_the_events_after_its_own_until_it_ends(rows: Rows) -> None:
    with rows.begin() as connection:
        events.record(connection, [_event(detail="slow")])
        rows.call(events.record, [_event(detail="quick")])
        assert _details(rows) == []
    assert _details(rows) == ["slow", "quick"]


def test_an_event_of_an_older_transaction_does_not_overtake_an_open_one(rows: Rows) -> None:
    """The one that began first writes last: its event must not show before the other's."""
    with ExitStack() as stack:
        older = stack.enter_context(rows.begin())
        _begin_writing(older)
        with rows.begin() as younger:
            events.record(younger, [_event(detail="younger")])
            events.record(older, [_event(detail="older")])
            stack.close()
            assert _details(rows) == []
        assert _details(rows) == ["younger", "older"]


def test_a_transaction_that_fails_hides_nothing_for_long(rows: Rows) -> None:
    with rows.engine.connect() as connection:
        events.record(connection, [_event(detail="undone")])
        rows.call(events.record, [_event(detail="done")])
        assert _details(rows) == []
        connection.rollback()
    assert _details(rows) == ["done"]


def test_a_transaction_that_writes_no_events_hides_none(rows: Rows) -> None:
    with rows.begin() as connection:
        _begin_writing(connection)
        rows.call(events.record, [_event(detail="quick")])
        assert _details(rows) == ["quick"]


def test_a_follower_misses_nothing_of_many_writers(rows: Rows) -> None:
    writers, each_writes = 8, 25
    done = threading.Event()
    seen: list[int] = []

    def write(number: int) -> None:
        chance = random.Random(number)
        for _ in range(each_writes):
            with suppress(_Fails), rows.begin() as connection:
                if chance.random() < 0.5:
                    _begin_writing(connection)
                events.record(connection, [_event() for _ in range(chance.randint(1, 3))])
                for _ in range(chance.randint(0, 4)):
                    connection.execute(sql("SELECT 1"))
                if chance.random() < 0.1:
                    raise _Fails

    def follow() -> None:
        last = 0
        while True:
            finished = done.is_set()
            page = rows.call(events.after, last, limit=7)
            seen.extend(each.id for each in page)
            last = page[-1].id if page else last
            if finished and not page:
                return

    with ThreadPoolExecutor(writers + 1) as pool:
        follower = pool.submit(follow)
        writing = [pool.submit(write, number) for number in range(writers)]
        try:
            for written in writing:
                written.result(60)
        finally:
            done.set()
        follower.result(60)
    assert seen == [row[0] for row in rows.all("SELECT id FROM events ORDER BY id")]


def test_events_past_their_retention_are_forgotten(rows: Rows) -> None:
    rows.call(events.record, [_event(detail="old")])
    rows.execute("UPDATE events SET at = at - interval '100 s'")
    rows.call(events.record, [_event(detail="new")])
    assert rows.call(events.purge, older_seconds=50) == 1
    assert _details(rows) == ["new"]
