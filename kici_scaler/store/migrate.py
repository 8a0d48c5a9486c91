"""Bring the schema to what this code expects, and say when it is not."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import OperationalError

from kici_scaler.store.engine import CONNECT_ARGS, DatabaseUnreachable

_HERE = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 0x6B696369


def upgrade(database_url: str, revision: str = "head") -> None:
    """Migrate to `revision`; several processes may call it at once.

    Raises:
        DatabaseUnreachable: the server does not answer.
    """
    _run(database_url, lambda config: command.upgrade(config, revision))


def downgrade(database_url: str, revision: str = "base") -> None:
    """Migrate back to `revision`; data of newer tables is lost."""
    _run(database_url, lambda config: command.downgrade(config, revision))


def current_problem(database_url: str) -> str | None:
    """Why this code cannot run on the schema as it is, or None when it can.

    A schema newer than the code is fine: changes within a minor version only add.
    """
    engine = _engine(database_url)
    try:
        with engine.connect() as connection:
            current = MigrationContext.configure(connection).get_current_revision()
    except OperationalError as error:
        raise DatabaseUnreachable(error) from error
    finally:
        engine.dispose()
    script = ScriptDirectory.from_config(_config())
    known = [each.revision for each in script.walk_revisions()]
    if current is None:
        return "the database has no schema yet; run `kici-scaler migrate`"
    if current in known[1:]:
        return f"the schema is at {current}, this code needs {known[0]}; run `kici-scaler migrate`"
    return None


def head() -> str:
    """The newest revision that this code knows."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def _engine(database_url: str) -> Engine:
    connect_args = {key: value for key, value in CONNECT_ARGS.items() if key != "options"}
    return create_engine(database_url, connect_args=connect_args)


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_HERE))
    config.attributes["connection"] = connection
    return config


def _run(database_url: str, action: object) -> None:
    assert callable(action)
    engine = _engine(database_url)
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
            connection.commit()
            try:
                action(_config(connection))
                connection.commit()
            finally:
                connection.execute(
                    text("SELECT pg_advisory_unlock(:key)"), {"key": _MIGRATION_LOCK}
                )
                connection.commit()
    except OperationalError as error:
        raise DatabaseUnreachable(error) from error
    finally:
        engine.dispose()
