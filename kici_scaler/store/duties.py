"""Regular duties that any number of clocks may fire and one performs."""

from __future__ import annotations

from sqlalchemy import Connection

from kici_scaler.store.bulk import sql

IS_TIME = "d.ticked_at <= clock_timestamp() - make_interval(secs => CAST(:interval AS float) * 0.8)"
"""Whether the next tick of duty `d` may begin; a clock that is a little early is not sent away."""


def claim_tick(connection: Connection, duty: str, *, interval_seconds: float) -> bool:
    """Whether this call owns the duty's current tick; later calls in the interval do not."""
    row = connection.execute(
        sql(f"""
            INSERT INTO duties AS d (duty, ticked_at) VALUES (:duty, clock_timestamp())
            ON CONFLICT (duty) DO UPDATE SET ticked_at = clock_timestamp()
            WHERE {IS_TIME}
            RETURNING duty
        """),
        {"duty": duty, "interval": interval_seconds},
    )
    return row.scalar_one_or_none() is not None


def cursor(connection: Connection, duty: str) -> int:
    """Up to where a duty that works through a sequence has come."""
    value = connection.execute(
        sql("SELECT reached FROM duties WHERE duty = :duty"), {"duty": duty}
    ).scalar_one_or_none()
    return 0 if value is None else int(value)


def move_cursor(connection: Connection, duty: str, reached: int) -> None:
    """Note up to where it has come; never back."""
    connection.execute(
        sql("UPDATE duties SET reached = greatest(reached, :reached) WHERE duty = :duty"),
        {"duty": duty, "reached": reached},
    )


def seconds_since(connection: Connection, duty: str) -> float | None:
    """How long ago the duty ticked last; None when it never did."""
    value = connection.execute(
        sql("""
            SELECT extract(epoch FROM clock_timestamp() - ticked_at)
            FROM duties WHERE duty = :duty
        """),
        {"duty": duty},
    ).scalar_one_or_none()
    return None if value is None else float(value)
