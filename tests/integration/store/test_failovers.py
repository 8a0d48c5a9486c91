"""A database that is another than before is noticed at its first statement, and remembered."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.ports import free_port
from kici_scaler.embedded.postgres import STOP, EmbeddedPostgres
from kici_scaler.store import failovers, migrate, settings
from kici_scaler.store.engine import make_engine
from kici_scaler.store.failovers import Noted
from tests.support.rows import Rows
from tests.support.servers import running
from tests.support.waiting import eventually

OTHER = "UPDATE server_identity SET identity = 'another/00000001'"


def test_the_server_is_known_from_the_first_look_on(rows: Rows) -> None:
    assert rows.call(failovers.note) == Noted(changed=False, held=False)
    standing = rows.call(failovers.standing)
    assert standing.identity == rows.one("SELECT identity FROM server_identity")
    assert (standing.held, standing.held_since) == (False, None)


def test_another_server_is_noticed_before_anybody_notes_it_and_once(rows: Rows) -> None:
    rows.call(failovers.note)
    rows.execute(OTHER)
    assert rows.call(failovers.is_held)
    assert rows.call(settings.live).held_back
    assert [rows.call(failovers.note).changed for _ in range(2)] == [True, False]
    assert rows.call(failovers.note).held
    held = rows.call(failovers.standing)
    assert held.held
    assert held.held_since is not None
    assert [rows.call(failovers.lift) for _ in range(2)] == [True, False]
    assert not rows.call(settings.live).held_back


def test_a_person_may_be_quicker_than_the_sweep(rows: Rows) -> None:
    rows.call(failovers.note)
    rows.execute(OTHER)
    assert rows.call(failovers.lift)
    assert not rows.call(failovers.is_held)
    assert not rows.call(failovers.note).changed


def test_nothing_is_written_while_nothing_changes(rows: Rows) -> None:
    rows.call(failovers.note)
    before = rows.one("SELECT xmin::text || ctid::text FROM server_identity")
    rows.call(failovers.note)
    assert rows.one("SELECT xmin::text || ctid::text FROM server_identity") == before


def test_a_role_that_may_not_ask_holds_nothing_back(rows: Rows) -> None:
    """Then a failover goes unnoticed, which the diagnosis says."""
    rows.call(failovers.note)
    rows.execute(OTHER)
    definition = rows.one("SELECT pg_get_functiondef('kici_server_identity()'::regprocedure)")
    rows.execute(
        "CREATE OR REPLACE FUNCTION kici_server_identity() RETURNS text LANGUAGE sql"
        " AS 'SELECT NULL::text'"
    )
    try:
        assert not rows.call(failovers.is_held)
        assert not rows.call(failovers.note).changed
        assert rows.call(failovers.standing).identity is None
    finally:
        with rows.engine.begin() as connection:
            connection.exec_driver_sql(definition)


@pytest.fixture
def own_server() -> Iterator[EmbeddedPostgres]:
    """A server for this test alone, which starts and stops it."""
    home = make_temporary_home("kici-failover-")
    yield EmbeddedPostgres(home, free_port(), durable=False)
    shutil.rmtree(home)


def _engine(server: EmbeddedPostgres) -> Engine:
    return make_engine(server.url, application="test", pool_size=1)


def test_a_promotion_to_a_new_timeline_holds_things_back(own_server: EmbeddedPostgres) -> None:
    with running(own_server, STOP):
        own_server.provision()
        migrate.upgrade(own_server.url)
        rows = Rows(_engine(own_server))
        before = rows.call(failovers.standing)
        rows.engine.dispose()
    assert not before.held
    with running(own_server, STOP):
        rows = Rows(_engine(own_server))
        assert rows.call(failovers.standing) == before, "a restart changes nothing"
        rows.engine.dispose()
    # Recovery that finds no more log ends on a timeline of its own, like a standby's promotion.
    (own_server.folder / "recovery.signal").touch()
    with (own_server.folder / "postgresql.auto.conf").open("a") as file:
        file.write("restore_command = 'false'\n")
    with running(own_server, STOP):
        rows = Rows(_engine(own_server))
        eventually(lambda: not rows.one("SELECT pg_is_in_recovery()"), 30)
        after = rows.call(failovers.standing)
        assert after.held
        assert after.identity == str(before.identity).replace("/00000001", "/00000002")
        assert rows.call(failovers.note).changed
        rows.engine.dispose()
