"""What is kept of warm pools besides their agents: how each stands, and what was counted.

Counts are appended, never changed, so that whoever counts waits for nobody; the pass that
fills the pools folds them now and then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection

from kici_scaler.store.bulk import records, sql

MOST_UNFOLDED = 500
"""Rows of counts that may pile up before they are folded."""


class What(StrEnum):
    """What is counted of a pool."""

    HIT = "hit"
    """A job was given to a ready agent."""
    MISS_SHAPE = "miss-shape"
    """An agent was started for a job of another size than the pool's."""
    MISS_IMAGE = "miss-image"
    """An agent was started for a job with an image of its own."""
    MISS_NONE_READY = "miss-none-ready"
    """An agent was started for a job that a ready one could have had."""
    LOST = "lost"
    """A ready agent that was given a job ended before it began it."""
    SPAWN = "spawn"
    """The pool had an agent reserved."""
    REAP = "reap"
    """The pool had an agent ended."""


@dataclass(frozen=True, slots=True)
class Count:
    """So many more of something, of one pool."""

    scaler: str
    label_set: str
    what: What
    n: int = 1


def count(connection: Connection, counts: Iterable[Count]) -> None:
    """Add to what was counted."""
    rows = list(counts)
    if rows:
        connection.execute(
            sql("""
                INSERT INTO warm_counts (scaler, label_set, what, n)
                SELECT scaler, label_set, what, sum(n)
                FROM jsonb_to_recordset(CAST(:rows AS jsonb))
                  AS c(scaler text, label_set text, what text, n bigint)
                GROUP BY scaler, label_set, what
            """),
            {"rows": records(rows)},
        )


def count_lost(connection: Connection, agent_ids: Sequence[str]) -> None:
    """Count those of these spawns that were given a job when they were ready, and never began."""
    connection.execute(
        sql(
            """
            INSERT INTO warm_counts (scaler, label_set, what, n)
            SELECT scaler, key, 'lost', count(*)
            FROM spawns, LATERAL (
                SELECT string_agg(DISTINCT label COLLATE "C", ',' ORDER BY label COLLATE "C") AS key
                FROM unnest(label_set) AS label) AS identity
            WHERE agent_id = ANY(:ids) AND warm AND job_id IS NOT NULL AND busy_at IS NULL
            GROUP BY scaler, key
            """,
            "ids",
        ),
        {"ids": list(agent_ids)},
    )


def counts(connection: Connection) -> list[Count]:
    """Everything counted so far, one entry for each pool and thing; only ever grows."""
    rows = connection.execute(
        sql("""
            SELECT scaler, label_set, what, sum(n)::bigint AS n FROM warm_counts
            GROUP BY scaler, label_set, what ORDER BY scaler, label_set, what
        """)
    )
    return [Count(row.scaler, row.label_set, What(row.what), row.n) for row in rows]


def fold(connection: Connection) -> None:
    """Put many rows of counts into one each, once there are many; one caller at a time."""
    unfolded = connection.execute(sql("SELECT count(*) FROM warm_counts")).scalar_one()
    if unfolded > MOST_UNFOLDED:
        connection.execute(
            sql("""
                WITH gone AS (DELETE FROM warm_counts RETURNING scaler, label_set, what, n)
                INSERT INTO warm_counts (scaler, label_set, what, n)
                SELECT scaler, label_set, what, sum(n) FROM gone GROUP BY scaler, label_set, what
            """)
        )


@dataclass(frozen=True, slots=True)
class PoolRow:
    """How a pool stood after the last pass: its target, what is missing, and why."""

    scaler: str
    label_set: str
    target: int
    short: int
    why: str


def pools(connection: Connection) -> dict[tuple[str, str], PoolRow]:
    """Every pool's row, by scaler and label set."""
    rows = connection.execute(sql("SELECT scaler, label_set, target, short, why FROM warm_pools"))
    return {(row.scaler, row.label_set): PoolRow(**row._mapping) for row in rows}


def write_pools(
    connection: Connection, changed: Iterable[PoolRow], gone: Iterable[tuple[str, str]]
) -> None:
    """Write the rows that changed, and drop those of pools that are there no more."""
    rows, left = list(changed), list(gone)
    if rows:
        connection.execute(
            sql("""
                INSERT INTO warm_pools (scaler, label_set, target, short, why)
                SELECT scaler, label_set, target, short, why
                FROM jsonb_to_recordset(CAST(:rows AS jsonb))
                  AS p(scaler text, label_set text, target integer, short integer, why text)
                ON CONFLICT (scaler, label_set) DO UPDATE SET target = excluded.target,
                    short = excluded.short, why = excluded.why, changed_at = clock_timestamp()
            """),
            {"rows": records(rows)},
        )
    for scaler, label_set in left:
        connection.execute(
            sql("DELETE FROM warm_pools WHERE scaler = :scaler AND label_set = :label_set"),
            {"scaler": scaler, "label_set": label_set},
        )


@dataclass(frozen=True, slots=True)
class Wishes:
    """Who could use capacity that has just been freed."""

    requests_wait: bool = False
    pools_short: bool = False


WISHES = """
    EXISTS (SELECT 1 FROM scale_requests WHERE state = 'waiting') AS requests_wait,
    EXISTS (SELECT 1 FROM warm_pools WHERE short > 0) AS pools_short
"""
"""The columns of `Wishes`."""


def wishes(connection: Connection) -> Wishes:
    """Whether requests wait, and whether some pool misses agents."""
    return Wishes(**connection.execute(sql(f"SELECT {WISHES}")).one()._mapping)
