"""The database engine: one driver, one isolation level, bounded waits everywhere."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, DisconnectionError, InvalidRequestError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from kici_scaler.errors import KiciError, Unavailable
from kici_scaler.store import prepared

CONNECT_ARGS: dict[str, object] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "options": (
        "-c statement_timeout=10s -c lock_timeout=3s -c idle_in_transaction_session_timeout=15s"
        # Told once a session: a driver that is told has it said again for every transaction.
        " -c default_transaction_isolation=read\\ committed"
        # What lives fits into memory, where no page is farther away than another.
        " -c random_page_cost=1.1"
    ),
}


class DatabaseUnreachable(Unavailable):
    """The database does not answer; nothing was decided."""

    def __init__(self, cause: object) -> None:
        first_line = str(cause).strip().splitlines()[0] if str(cause).strip() else "no answer"
        super().__init__(
            f"the database cannot be reached: {first_line}",
            hint="check KICI_DATABASE_URL and that the server accepts connections",
        )


class CommitUnknown(DatabaseUnreachable):
    """The connection broke during COMMIT: it may or may not have happened; read back."""


class Contended(KiciError):
    """Others kept a lock too long; nothing was done here, so it may be repeated."""


_READ_ONLY = "25006"
_SERVERS_OWN = ("08", "57P", "53", "58", _READ_ONLY)
"""SQLSTATEs and classes: connection, shutdown, resources, system, and a server that only reads."""
_TOO_LONG = frozenset({"55P03", "57014", "40P01", "40001"})
"""SQLSTATEs: lock not available in time, statement over its time, deadlock, serialization."""


def make_engine(
    database_url: str,
    *,
    application: str,
    pool_size: int = 5,
    uses_before_prepared: int = prepared.USES_BEFORE,
) -> Engine:
    """An engine pinned to READ COMMITTED with short waits and a named session.

    Create it after any fork; `pool_size` is the number of threads that use it at once.
    """
    engine = create_engine(
        database_url,
        pool_size=pool_size,
        max_overflow=2,
        pool_timeout=5,
        pool_recycle=1800,
        # The session that was used last has the most in its caches.
        pool_use_lifo=True,
        connect_args={**CONNECT_ARGS, "application_name": f"kici-scaler {application}"[:63]},
    )
    event.listen(engine, "checkout", _refuse_what_was_closed)
    prepared.prepare_repeated(engine, uses_before=uses_before_prepared)
    return engine


def _refuse_what_was_closed(connection: Any, _record: object, _proxy: object) -> None:
    """Have the pool replace a session that the server ended while nobody used it.

    An idle server says nothing, so only a socket with something to read is asked what it is: the
    end of the session, or a notice. That spares every transaction the round trips of a ping.
    """
    watched = select.poll()
    try:
        watched.register(connection.fileno(), select.POLLIN)
        if not watched.poll(0):
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        connection.rollback()
    except connection.Error as error:
        raise DisconnectionError(str(error)) from error


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """One short transaction.

    Raises:
        DatabaseUnreachable: the server went away before COMMIT; nothing happened.
        CommitUnknown: it went away during COMMIT; look before repeating.
        Contended: a wait for others passed its bound; nothing happened.
    """
    try:
        connection = engine.connect()
    # The pool calls it invalid when one session after the other was ended before it was used.
    except (OperationalError, InvalidRequestError, PoolTimeout) as error:
        raise DatabaseUnreachable(error) from error
    with connection:
        begun = connection.begin()
        try:
            yield connection
        except DBAPIError as error:
            _roll_back(connection)
            if is_disconnect(error) and not _is_meant_to_read(connection, error):
                connection.invalidate()
                raise DatabaseUnreachable(error) from error
            if waited_too_long(error):
                raise Contended from error
            raise
        except BaseException:
            _roll_back(connection)
            raise
        try:
            begun.commit()
        except DBAPIError as error:
            connection.invalidate()
            raise CommitUnknown(error) from error


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """One read-only transaction in which every statement sees the same moment.

    Raises:
        DatabaseUnreachable: the server does not answer.
    """
    frozen = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    with transaction(frozen) as connection:
        yield connection


def is_disconnect(error: DBAPIError) -> bool:
    """Whether the server, rather than the statement, is what failed."""
    if error.connection_invalidated:
        return True
    code = sqlstate(error)
    if code is None:
        return isinstance(error, OperationalError)
    return code.startswith(_SERVERS_OWN)


def _is_meant_to_read(connection: Connection, error: DBAPIError) -> bool:
    """Whether it is no server that only reads, but a snapshot that should write."""
    options = connection.get_execution_options()
    return sqlstate(error) == _READ_ONLY and bool(options.get("postgresql_readonly"))


def waited_too_long(error: DBAPIError) -> bool:
    """Whether a bound on waiting ended the statement, or the end of a deadlock did."""
    return sqlstate(error) in _TOO_LONG


def sqlstate(error: DBAPIError) -> str | None:
    """The five-character SQLSTATE of a driver error, if it carries one."""
    return getattr(error.orig, "pgcode", None)


def _roll_back(connection: Connection) -> None:
    try:
        connection.rollback()
    except DBAPIError:
        connection.invalidate()
