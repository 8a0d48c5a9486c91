"""Requests that come in, stored by whoever would decide them at once."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from kici_scaler.store import requests, section
from kici_scaler.store.bulk import records, sql
from kici_scaler.store.requests import NewRequest

# In this order: what is written may wait for another who writes the same, which nobody should
# have to wait for in the section.
_INSERT_AND_TRY = f"""
    WITH stored AS ({requests.INSERT})
    SELECT {section.BOUNDS},
           (SELECT coalesce(array_agg(job_id), '{{}}') FROM stored) AS new,
           {section.TRY} AS entered
"""


def insert_and_try(
    connection: Connection, rows: Iterable[NewRequest], *, bound_seconds: float
) -> tuple[frozenset[str], bool]:
    """Bound every wait, store new requests, and take the admission lock if it is free.

    Returns the job ids that were not there yet, and whether the lock was got. The next statement
    sees what its holder before had committed.
    """
    requested = list(rows)
    if len(requested) > 1:
        # Each row may wait, and what bounds a statement as a whole has to stand before it begins.
        section.bound_waits(connection, bound_seconds)
    values = {"rows": records(requested), **section.bounds(bound_seconds)}
    row = connection.execute(sql(_INSERT_AND_TRY), values).one()
    return frozenset(row.new), row.entered
