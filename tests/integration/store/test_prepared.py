"""Repeated statements are planned once a session, and nobody notices but the clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from kici_scaler.store import prepared
from kici_scaler.store.bulk import sql
from kici_scaler.store.engine import Contended, DatabaseUnreachable, make_engine, transaction
from tests.support.rows import Rows

ADDED = "SELECT CAST(:a AS int) + CAST(:b AS int) + CAST(:a AS int)"


@pytest.fixture
def single(engine: Engine, house_url: str) -> Iterator[Engine]:
    """An engine of one session that prepares as the roles do; `engine` has emptied the database."""
    made = make_engine(house_url, application="single", pool_size=1)
    yield made
    made.dispose()


def _add(engine: Engine, a: int = 1, b: int = 2) -> int:
    with transaction(engine) as connection:
        return int(connection.execute(sql(ADDED), {"a": a, "b": b}).scalar_one())


def _kept(engine: Engine) -> list[tuple[str, int]]:
    """What the session has prepared, and how often each was run."""
    with transaction(engine) as connection:
        found = connection.exec_driver_sql(
            "SELECT statement, generic_plans + custom_plans FROM pg_prepared_statements"
        )
        return [(row[0], row[1]) for row in found]


def _prepare(engine: Engine) -> None:
    for _ in range(prepared.USES_BEFORE + 1):
        _add(engine)


def test_a_statement_is_prepared_once_it_is_repeated(single: Engine) -> None:
    for _ in range(prepared.USES_BEFORE):
        _add(single)
    assert _kept(single) == []
    assert [_add(single, number, 10) for number in range(3)] == [10, 12, 14]
    ((statement, runs),) = _kept(single)
    assert "CAST($1 AS int) + CAST($2 AS int) + CAST($1 AS int)" in statement
    assert runs == 3


def test_a_statement_without_values_and_one_with_per_cent_signs(engine: Engine) -> None:
    for _ in range(3):
        with transaction(engine) as connection:
            found = connection.execute(sql("SELECT 'a%b' LIKE 'a!%%' ESCAPE '!', 7 % 4")).one()
            named = connection.execute(sql("SELECT :it LIKE 'a%'"), {"it": "ab"}).scalar_one()
    assert tuple(found) == (True, 3)
    assert named is True


def test_how_many_rows_were_written_is_told(engine: Engine, rows: Rows) -> None:
    for number in range(4):
        rows.request(f"job-{number}")
    for priority in range(1, 4):
        with transaction(engine) as connection:
            done = connection.execute(
                sql("UPDATE scale_requests SET priority = :priority"), {"priority": priority}
            )
            assert done.rowcount == 4


def test_each_run_sees_what_was_committed_before_it(engine: Engine, rows: Rows) -> None:
    count = sql("SELECT count(*) FROM scale_requests")
    with transaction(engine) as connection:
        seen = []
        for number in range(3):
            seen.append(connection.execute(count).scalar_one())
            rows.request(f"job-{number}")
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("text_of_many", ["SELECT 1; SELECT 2", "SET LOCAL work_mem = '8MB'"])
def test_what_is_no_single_statement_on_rows_is_left_alone(text_of_many: str) -> None:
    assert prepared.forms_of(text_of_many) is None


def test_an_error_while_it_is_prepared_leaves_a_statement_as_it_was(
    single: Engine, rows: Rows
) -> None:
    """Whether the server has it by then is not known, so this session runs it the plain way."""
    rows.request("job")
    change = "UPDATE scale_requests SET priority = :priority"

    def write(connection: Connection, priority: int, *, patience: str = "3s") -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{patience}'")
        connection.execute(sql(change), {"priority": priority})

    for priority in range(1, prepared.USES_BEFORE + 1):
        with transaction(single) as connection:
            write(connection, priority)
    with rows.begin() as holder:
        holder.execute(text("SELECT FROM scale_requests FOR UPDATE"))
        with pytest.raises(Contended), transaction(single) as connection:
            write(connection, 8, patience="50ms")
    for _ in range(3):
        with transaction(single) as connection:
            write(connection, 9)
    assert rows.one("SELECT priority FROM scale_requests") == 9


def test_behind_a_pooler_one_transaction_fails_as_if_the_server_had_gone(single: Engine) -> None:
    _prepare(single)
    with transaction(single) as connection:
        connection.exec_driver_sql("DEALLOCATE ALL")
    with pytest.raises(DatabaseUnreachable):
        _add(single)
    for _ in range(prepared.USES_BEFORE + 2):
        assert _add(single) == 4
    assert _kept(single) == []


def test_what_others_prepared_in_the_session_is_the_pooler_too(single: Engine) -> None:
    statement = str(sql(ADDED).compile(single))
    forms = prepared.forms_of(statement)
    assert forms is not None
    with transaction(single) as connection:
        connection.exec_driver_sql(forms.prepare)
    for _ in range(prepared.USES_BEFORE):
        _add(single)
    with pytest.raises(DatabaseUnreachable):
        _add(single)
    assert _add(single) == 4


def test_a_changed_result_costs_one_transaction_and_is_prepared_anew(
    single: Engine, rows: Rows
) -> None:
    rows.execute("CREATE TABLE changing AS SELECT 1 AS n")
    read = sql("SELECT n FROM changing")

    def run() -> object:
        with transaction(single) as connection:
            return connection.execute(read).scalar_one()

    try:
        for _ in range(prepared.USES_BEFORE + 1):
            assert run() == 1
        rows.execute("ALTER TABLE changing ALTER n TYPE text")
        with pytest.raises(DatabaseUnreachable):
            run()
        for _ in range(prepared.USES_BEFORE + 1):
            assert run() == "1"
        assert len(_kept(single)) == 1
    finally:
        rows.execute("DROP TABLE changing")


def test_a_session_keeps_a_bounded_number(single: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MOST", 2)
    for number in range(4):
        for _ in range(prepared.USES_BEFORE + 2):
            with transaction(single) as connection:
                assert connection.execute(sql(f"SELECT {number}")).scalar_one() == number
    assert len(_kept(single)) == 2


def test_errors_of_rows_are_told_as_ever(engine: Engine, rows: Rows) -> None:
    rows.request("job")
    for _ in range(3):
        with pytest.raises(DBAPIError), transaction(engine) as connection:
            connection.execute(
                sql("INSERT INTO scaler_states (scaler) SELECT :n FROM generate_series(1, 2)"),
                {"n": "twice"},
            )
    assert rows.count("scaler_states") == 0
