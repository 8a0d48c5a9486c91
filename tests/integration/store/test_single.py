"""A statement that is its own transaction: its cost, and what an error lets a caller conclude."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from kici_scaler.store.engine import (
    CommitUnknown,
    Contended,
    DatabaseUnreachable,
    make_engine,
    snapshot,
    transaction,
)
from kici_scaler.store.single import one_statement
from tests.support.rows import Rows
from tests.support.tcp_proxy import CutReply, CutRequest, TcpProxy
from tests.support.waiting import free_port

FRAME_BYTES = 6
"""What the protocol puts around the text of a simple query."""
WRITE = "INSERT INTO scaler_states (scaler) VALUES ('written')"


@pytest.fixture
def far(engine: Engine, house_url: str, proxy: TcpProxy) -> Iterator[Engine]:
    """An engine of one session that can be broken; `engine` has emptied the database."""
    url = make_url(house_url).set(host=proxy.host, port=proxy.port)
    made = make_engine(url.render_as_string(hide_password=False), application="far", pool_size=1)
    with transaction(made) as connection:
        connection.execute(text("SELECT 1"))
    yield made
    made.dispose()


def _write(connection: Connection) -> None:
    connection.execute(text(WRITE))


class _GivenUp(Exception):
    """What a transaction does not survive."""


def _give_up(engine: Engine, statement: str) -> None:
    with transaction(engine) as connection:
        connection.execute(text(statement))
        raise _GivenUp


def _is_written(rows: Rows) -> bool:
    return rows.count("scaler_states") == 1


def test_it_is_there_for_all_as_soon_as_it_ended(engine: Engine, rows: Rows) -> None:
    with one_statement(engine) as connection:
        _write(connection)
        assert _is_written(rows)


def test_it_costs_its_own_round_trip_and_no_other(far: Engine, proxy: TcpProxy) -> None:
    before = proxy.counts.request_bytes
    with one_statement(far) as connection:
        connection.execute(text("SELECT 1")).all()
    assert proxy.counts.request_bytes - before == len("SELECT 1") + FRAME_BYTES


def test_it_costs_no_more_after_a_snapshot(far: Engine, proxy: TcpProxy) -> None:
    """Of which the driver would have the server forget what a snapshot had told it."""
    with snapshot(far) as connection:
        connection.execute(text("SELECT 2")).all()
    test_it_costs_its_own_round_trip_and_no_other(far, proxy)
    with transaction(far) as connection:
        level = connection.execute(text("SHOW transaction_isolation")).scalar_one()
        only_reads = connection.execute(text("SHOW transaction_read_only")).scalar_one()
    assert (level, only_reads) == ("read committed", "off")


def test_its_session_holds_whole_transactions_again(far: Engine, rows: Rows) -> None:
    with one_statement(far) as connection:
        connection.execute(text("SELECT 1"))
    with pytest.raises(_GivenUp):
        _give_up(far, WRITE)
    assert not _is_written(rows)


def test_an_error_of_the_statement_is_told_as_it_is(far: Engine, rows: Rows) -> None:
    with one_statement(far) as connection:
        _write(connection)
    with pytest.raises(IntegrityError), one_statement(far) as connection:
        _write(connection)
    with pytest.raises(_GivenUp):
        _give_up(far, "DELETE FROM scaler_states")
    assert _is_written(rows)


@pytest.mark.parametrize("happens", [True, False])
def test_one_whose_answer_does_not_come_is_unknown(
    far: Engine, proxy: TcpProxy, rows: Rows, *, happens: bool
) -> None:
    if happens:
        proxy.requests = CutReply(b"INSERT")
    else:
        proxy.requests = CutRequest(b"INSERT")
    with pytest.raises(CommitUnknown), one_statement(far) as connection:
        _write(connection)
    assert _is_written(rows) is happens


def test_a_server_that_is_not_there_is_unreachable_and_keeps_the_password_to_itself() -> None:
    absent = make_engine(
        f"postgresql+psycopg2://u:secret@127.0.0.1:{free_port()}/d", application="test"
    )
    with pytest.raises(DatabaseUnreachable) as caught, one_statement(absent):
        pass
    assert not isinstance(caught.value, CommitUnknown), "nothing was sent"
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_row_that_another_keeps_too_long_is_contended(engine: Engine, rows: Rows) -> None:
    job = rows.request()
    with rows.begin() as connection:
        connection.execute(text("SELECT FROM scale_requests FOR UPDATE"))
        with pytest.raises(Contended), one_statement(engine) as other:
            other.execute(
                text("UPDATE scale_requests SET run_id = 'other' WHERE job_id = :id"), {"id": job}
            )
