"""Transactions: what an error lets a caller conclude, and the section one holder is in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, IntegrityError

from kici_scaler.store import section
from kici_scaler.store.bulk import sql
from kici_scaler.store.engine import (
    CommitUnknown,
    DatabaseUnreachable,
    make_engine,
    snapshot,
    transaction,
)
from kici_scaler.store.section import Contended
from tests.support.rows import Rows
from tests.support.tcp_proxy import CutReply, CutRequest, Mode, TcpProxy
from tests.support.waiting import eventually, free_port

FRAME_BYTES = 6
"""What the protocol puts around the text of a simple query."""


@pytest.fixture
def far(engine: Engine, house_url: str, proxy: TcpProxy) -> Iterator[Engine]:
    """An engine whose connections can be broken; `engine` has emptied the database."""
    url = make_url(house_url).set(host=proxy.host, port=proxy.port)
    made = make_engine(url.render_as_string(hide_password=False), application="far")
    yield made
    made.dispose()


def _write(connection: Connection) -> None:
    connection.execute(text("INSERT INTO scaler_states (scaler) VALUES ('written')"))


def _in(engine: Engine, *steps: Callable[[Connection], object]) -> None:
    """These steps in one transaction."""
    with transaction(engine) as connection:
        for step in steps:
            step(connection)


def _ask(statement: str) -> Callable[[Connection], object]:
    return lambda connection: connection.execute(text(statement)).all()


def _ask_nothing(statement: str) -> Callable[[Connection], object]:
    return lambda connection: connection.execute(text(statement))


def _bound(seconds: float) -> Callable[[Connection], object]:
    return lambda connection: section.bound_waits(connection, seconds)


def _is_written(rows: Rows) -> bool:
    return rows.count("scaler_states") == 1


def test_a_transaction_that_ends_is_there_for_all(engine: Engine, rows: Rows) -> None:
    with transaction(engine) as connection:
        _write(connection)
        assert not _is_written(rows)
    assert _is_written(rows)


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(1)])
def test_a_transaction_that_fails_leaves_nothing(
    engine: Engine, rows: Rows, error: BaseException
) -> None:
    def fail(_: Connection) -> None:
        raise error

    with pytest.raises(type(error)):
        _in(engine, _write, fail)
    assert not _is_written(rows)


def test_an_error_of_a_statement_is_told_as_it_is(engine: Engine, rows: Rows) -> None:
    with pytest.raises(IntegrityError):
        _in(engine, _write, _write)
    assert not _is_written(rows)


def test_a_server_that_is_not_there_is_unreachable_and_keeps_the_password_to_itself() -> None:
    absent = make_engine(
        f"postgresql+psycopg2://u:secret@127.0.0.1:{free_port()}/d", application="test"
    )
    with pytest.raises(DatabaseUnreachable) as caught, transaction(absent):
        pass
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_connection_that_breaks_before_the_commit_did_nothing(
    far: Engine, proxy: TcpProxy, rows: Rows
) -> None:
    with pytest.raises(DatabaseUnreachable) as caught:
        _in(far, _write, lambda _: proxy.drop(), _ask("SELECT 1"))
    assert not isinstance(caught.value, CommitUnknown)
    assert not _is_written(rows)


def test_a_commit_whose_answer_is_lost_is_unknown_though_it_happened(
    far: Engine, proxy: TcpProxy, rows: Rows
) -> None:
    with pytest.raises(CommitUnknown):
        _in(far, _write, lambda _: setattr(proxy, "requests", CutReply(b"COMMIT")))
    assert _is_written(rows)


def test_a_commit_that_never_arrives_is_unknown_though_it_did_not_happen(
    far: Engine, proxy: TcpProxy, rows: Rows
) -> None:
    with pytest.raises(CommitUnknown):
        _in(far, _write, lambda _: setattr(proxy, "requests", CutRequest(b"COMMIT")))
    assert not _is_written(rows)


def test_the_next_transaction_finds_a_good_connection_again(
    far: Engine, proxy: TcpProxy, rows: Rows
) -> None:
    with transaction(far) as connection:
        connection.execute(text("SELECT 1"))
    proxy.drop()
    with transaction(far) as connection:
        _write(connection)
    assert _is_written(rows)


def test_a_server_that_ends_each_session_at_once_is_unreachable(
    house_url: str, engine: Engine, rows: Rows
) -> None:
    doomed = make_engine(house_url, application="doomed")

    def end(connection: Any, _: object) -> None:
        pid = connection.info.backend_pid
        rows.call(_ask_nothing(f"SELECT pg_terminate_backend({pid}, 5000)"))

    event.listen(doomed, "connect", end)
    with pytest.raises(DatabaseUnreachable):
        _in(doomed, _ask("SELECT 1"))
    doomed.dispose()


def test_a_session_the_server_has_something_to_tell_is_kept(engine: Engine, rows: Rows) -> None:
    sessions: list[int] = []

    def note(connection: Connection) -> None:
        sessions.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())

    _in(engine, note, _ask_nothing("LISTEN told"))
    rows.call(_ask_nothing("NOTIFY told"))
    _in(engine, note, _write)
    assert sessions[0] == sessions[1]
    assert _is_written(rows)


def test_a_transaction_costs_no_round_trip_but_its_own(far: Engine, proxy: TcpProxy) -> None:
    _in(far, _ask("SELECT 1"))
    before = proxy.counts.request_bytes
    _in(far, _ask("SELECT 1"))
    said = sum(len(each) + FRAME_BYTES for each in ("BEGIN", "SELECT 1", "COMMIT"))
    assert proxy.counts.request_bytes - before == said


def test_more_threads_than_connections_is_unreachable_and_not_for_ever(
    house_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = make_engine(house_url, application="small", pool_size=1)
    monkeypatch.setattr(small.pool, "_timeout", 0.2)
    held = [small.connect() for _ in range(3)]
    try:
        with pytest.raises(DatabaseUnreachable), transaction(small):
            pass
    finally:
        for each in held:
            each.close()
        small.dispose()


def test_a_row_that_another_keeps_too_long_is_contended(engine: Engine, rows: Rows) -> None:
    rows.request()
    with rows.begin() as holder:
        holder.execute(text("SELECT FROM scale_requests FOR UPDATE"))
        with pytest.raises(Contended):
            _in(engine, _bound(0.1), _ask("UPDATE scale_requests SET priority = 1 RETURNING 1"))


def test_a_statement_that_takes_too_long_is_contended(engine: Engine) -> None:
    with pytest.raises(Contended):
        _in(engine, _bound(0.05), _ask("SELECT pg_sleep(5)"))


def test_whoever_is_chosen_to_end_a_deadlock_is_contended(engine: Engine, rows: Rows) -> None:
    rows.request("a")
    rows.request("b")
    both = threading.Barrier(2)

    def cross(first: str, second: str) -> bool:
        try:
            with transaction(engine) as connection:
                for job in (first, second):
                    connection.execute(
                        text("UPDATE scale_requests SET priority = 1 WHERE job_id = :job"),
                        {"job": job},
                    )
                    if job == first:
                        both.wait(10)
        except Contended:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(cross, "a", "b"), pool.submit(cross, "b", "a")]
        assert sorted(each.result(30) for each in done) == [False, True]


def test_a_frozen_server_does_not_hold_a_caller_for_ever(far: Engine, proxy: TcpProxy) -> None:
    with transaction(far) as connection:
        connection.execute(text("SELECT 1"))
    with proxy.treating(requests=Mode.RESET), pytest.raises(DatabaseUnreachable):
        _in(far, _ask("SELECT 1"))


def test_every_connection_says_who_it_is_and_waits_within_bounds(
    engine: Engine, rows: Rows
) -> None:
    with transaction(engine) as connection:
        shown = {
            name: connection.execute(text(f"SHOW {name}")).scalar_one()
            for name in (
                "application_name",
                "statement_timeout",
                "lock_timeout",
                "idle_in_transaction_session_timeout",
                "transaction_isolation",
            )
        }
    assert shown == {
        "application_name": "kici-scaler test",
        "statement_timeout": "10s",
        "lock_timeout": "3s",
        "idle_in_transaction_session_timeout": "15s",
        "transaction_isolation": "read committed",
    }


def test_a_snapshot_sees_one_moment(engine: Engine, rows: Rows) -> None:
    count = text("SELECT count(*) FROM scaler_states")
    with snapshot(engine) as connection:
        before = connection.execute(count).scalar_one()
        rows.call(_write)
        assert (before, connection.execute(count).scalar_one()) == (0, 0)
    with snapshot(engine) as connection:
        assert connection.execute(count).scalar_one() == 1


def test_a_snapshot_writes_nothing(engine: Engine, rows: Rows) -> None:
    with pytest.raises(DBAPIError, match="read-only"), snapshot(engine) as connection:
        _write(connection)


def test_a_server_that_only_reads_is_unreachable_and_not_asked_again(
    engine: Engine, rows: Rows
) -> None:
    sessions: list[int] = []

    def note(connection: Connection) -> None:
        sessions.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())

    with pytest.raises(DatabaseUnreachable, match="read-only"):
        _in(engine, note, _ask("SELECT set_config('transaction_read_only', 'on', true)"), _write)
    _in(engine, note, _write)
    assert sessions[0] != sessions[1]
    assert _is_written(rows)


def _try_to_enter(connection: Connection) -> bool:
    return bool(connection.execute(sql(f"SELECT {section.TRY}")).scalar_one())


def test_the_section_has_one_holder(engine: Engine, rows: Rows) -> None:
    with transaction(engine) as holder:
        section.enter(holder)
        assert not rows.call(_try_to_enter)
        with pytest.raises(Contended):
            _in(engine, partial(section.enter, bound_seconds=0.1))
    assert rows.call(_try_to_enter)


def test_the_section_is_free_again_however_its_holder_ended(
    far: Engine, proxy: TcpProxy, rows: Rows
) -> None:
    with pytest.raises(DatabaseUnreachable):
        _in(far, section.enter, lambda _: proxy.drop(), _ask("SELECT 1"))
    eventually(lambda: rows.call(_try_to_enter))


def test_a_holder_that_stands_still_loses_the_section_and_its_writes(
    engine: Engine, rows: Rows
) -> None:
    def stand_still(_: Connection) -> None:
        eventually(lambda: rows.call(_try_to_enter), within=10)

    enter = partial(section.enter, bound_seconds=0.2)
    with pytest.raises(DatabaseUnreachable):
        _in(engine, enter, _write, stand_still, _ask("SELECT 1"))
    assert not _is_written(rows)


def test_bounds_last_for_one_transaction(house_url: str, engine: Engine) -> None:
    single = make_engine(house_url, application="single", pool_size=1)
    with transaction(single) as connection:
        section.enter(connection, bound_seconds=0.5)
        assert connection.execute(text("SHOW lock_timeout")).scalar_one() == "500ms"
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "500ms"
    with transaction(single) as connection:
        assert connection.execute(text("SHOW lock_timeout")).scalar_one() == "3s"
    single.dispose()


def test_whoever_enters_sees_what_every_earlier_holder_wrote(engine: Engine, rows: Rows) -> None:
    """Count and insert in turn: with lock and count in one statement, some would be missed."""
    most = 25

    def reserve(_: int) -> bool:
        with transaction(engine) as connection:
            section.enter(connection)
            count = connection.execute(text("SELECT count(*) FROM scaler_states")).scalar_one()
            if count >= most:
                return False
            connection.execute(
                text("INSERT INTO scaler_states (scaler) VALUES (:name)"),
                {"name": f"scaler-{count}"},
            )
            return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(reserve, range(80))) == most
    assert rows.count("scaler_states") == most
