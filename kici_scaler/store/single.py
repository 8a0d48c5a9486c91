"""A transaction of one statement: sent alone, without a round trip to begin and one to commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine

from kici_scaler.store.engine import CommitUnknown, DatabaseUnreachable, transaction


@contextmanager
def one_statement(engine: Engine) -> Iterator[Connection]:
    """Where one statement is all there is: the server commits it as it ends.

    What only reads may come before or after it; a second statement that writes would be a
    transaction of its own.

    Raises:
        DatabaseUnreachable: no session was to be had; nothing happened.
        CommitUnknown: the server went away, before or after it had committed.
        Contended: a wait for others passed its bound; nothing happened.
    """
    is_open = False
    try:
        with transaction(engine) as connection, _committed_by_the_server(connection):
            is_open = True
            yield connection
    except CommitUnknown:
        raise
    except DatabaseUnreachable as error:
        if not is_open:
            raise
        raise CommitUnknown(error.__cause__ or error) from error


@contextmanager
def _committed_by_the_server(connection: Connection) -> Iterator[None]:
    """Said to the driver alone, and taken back: SQLAlchemy's own way tells the server each time."""
    session: Any = connection.connection.dbapi_connection
    # What a snapshot left said explicitly, the driver would say to the server here and after it.
    session.isolation_level = session.readonly = None
    session.autocommit = True
    try:
        yield
    finally:
        if not session.closed:
            session.autocommit = False
