"""The section in which capacity is counted and reserved, one holder at a time.

The lock is a statement of its own: under READ COMMITTED each statement sees what was
committed before it began, so the count that follows sees every earlier holder's rows.
Lock and count in one statement would share a snapshot from before the wait.
"""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from kici_scaler.store.bulk import sql
from kici_scaler.store.engine import Contended, waited_too_long

__all__ = [
    "ADMISSION_LOCK",
    "BOUNDS",
    "TRY",
    "Contended",
    "bound_waits",
    "bounds",
    "enter",
]

ADMISSION_LOCK = 0x6B6963690001

BOUNDS = """
    set_config('lock_timeout', :wait, true), set_config('statement_timeout', :wait, true),
    set_config('idle_in_transaction_session_timeout', :idle, true)
"""
"""Columns of a query that bound what follows in its transaction, with the values of `bounds`."""


def bound_waits(connection: Connection, seconds: float) -> None:
    """Bound every wait and statement of this transaction, and how long it may stand still.

    A holder that is frozen between two statements loses the section after twice as long: the
    server ends its session, so its writes never happen.
    """
    connection.execute(sql(f"SELECT {BOUNDS}"), bounds(seconds))


def bounds(seconds: float) -> dict[str, object]:
    """The values of `BOUNDS`."""
    millis = max(1, int(seconds * 1000))
    return {"wait": f"{millis}ms", "idle": f"{2 * millis}ms"}


_ENTER = f"pg_advisory_xact_lock({ADMISSION_LOCK})"


def enter(connection: Connection, *, bound_seconds: float | None = None) -> None:
    """Wait for the admission lock; held until the transaction ends.

    Args:
        bound_seconds: bounds this wait and every later one of the transaction, as `bound_waits`.

    Raises:
        Contended: a bound passed first.
    """
    try:
        if bound_seconds is None:
            connection.execute(sql(f"SELECT {_ENTER}"))
        else:
            connection.execute(sql(f"SELECT {BOUNDS}, {_ENTER}"), bounds(bound_seconds))
    except DBAPIError as error:
        if waited_too_long(error):
            raise Contended from error
        raise


TRY = f"pg_try_advisory_xact_lock({ADMISSION_LOCK})"
"""Column of a query that takes the admission lock if it is free, and tells whether."""
