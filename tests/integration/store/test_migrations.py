"""The schema goes up, down and up again, and says when it does not fit the code."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from kici_scaler.cli.main import app
from kici_scaler.errors import Conflict
from kici_scaler.store import migrate
from kici_scaler.store.engine import DatabaseUnreachable
from tests.support.waiting import free_port

_SCHEMA = """
    SELECT 'column' AS kind, table_name || '.' || column_name AS name,
           concat_ws(' ', data_type, is_nullable, column_default) AS what
    FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL
    SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL
    SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'sequence', sequencename, data_type::text FROM pg_sequences
    WHERE schemaname = 'public'
    ORDER BY 1, 2
"""


def _schema(url: str) -> list[tuple[str, ...]]:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(_SCHEMA))]
    finally:
        engine.dispose()


def _left(url: str) -> set[str]:
    """Names of what stands in the schema besides the migration tool's own table."""
    return {name for _, name, _ in _schema(url) if "alembic_version" not in name}


def test_up_and_down_and_up_again_is_the_same_schema(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    first = _schema(empty_database)
    migrate.downgrade(empty_database)
    assert not _left(empty_database)
    migrate.upgrade(empty_database)
    assert _schema(empty_database) == first


def test_migrating_what_is_migrated_changes_nothing(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    first = _schema(empty_database)
    migrate.upgrade(empty_database)
    assert _schema(empty_database) == first


def test_each_step_goes_down_by_itself(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    whole = _schema(empty_database)
    migrate.downgrade(empty_database, "-1")
    migrate.upgrade(empty_database, "+1")
    assert _schema(empty_database) == whole


def test_many_processes_may_migrate_at_once(empty_database: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(migrate.upgrade, empty_database) for _ in range(6)]:
            done.result()
    assert migrate.current_problem(empty_database) is None


def test_a_database_without_a_schema_is_told_what_to_run(empty_database: str) -> None:
    problem = migrate.current_problem(empty_database)
    assert problem is not None
    assert "kici-scaler migrate" in problem


def test_a_schema_that_fits_is_no_problem(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    assert migrate.current_problem(empty_database) is None


def test_a_schema_newer_than_the_code_is_no_problem(empty_database: str) -> None:
    migrate.upgrade(empty_database)
    engine = create_engine(empty_database)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    assert migrate.current_problem(empty_database) is None


@pytest.mark.parametrize("call", [migrate.upgrade, migrate.downgrade, migrate.current_problem])
def test_a_server_that_is_not_there_is_named_as_that(call: object) -> None:
    assert callable(call)
    url = f"postgresql+psycopg2://u:secret@127.0.0.1:{free_port()}/d"
    with pytest.raises(DatabaseUnreachable) as caught:
        call(url)
    assert "secret" not in str(caught.value)
    assert "KICI_DATABASE_URL" in caught.value.hint


def test_the_command_migrates_and_tells_whether_there_is_something_to_do(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KICI_DATABASE_URL", empty_database)
    command = CliRunner()

    before = command.invoke(app, ["migrate", "--check"])
    still_before = migrate.current_problem(empty_database)
    done = command.invoke(app, ["migrate"])
    after = command.invoke(app, ["migrate", "--check"])

    assert isinstance(before.exception, Conflict)
    assert still_before is not None, "a check changes nothing"
    assert (done.exit_code, after.exit_code) == (0, 0), (done.output, after.output)
    assert after.stdout == "the schema is up to date\n"
