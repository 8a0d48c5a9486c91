"""What it costs to keep connections: memory of the process, and a window in which nobody speaks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil
from sqlalchemy import text

from bench.place import Place

_WRITES = """
    SELECT relname, n_tup_ins + n_tup_upd + n_tup_del AS written
    FROM pg_stat_user_tables
"""
TICK_SECONDS = 0.01
"""What the kernel counts processor time in; none seen is less than one."""
_TRANSACTIONS = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process holds, in bytes."""

    resident: int
    proportional: int
    """Pages it shares with others counted in parts."""

    @classmethod
    def of(cls, pid: int) -> Memory:
        """As the kernel tells it now."""
        found = psutil.Process(pid).memory_full_info()
        return cls(found.rss, found.pss)

    def each_of(self, count: int, before: Memory) -> Memory:
        """What came since `before`, for each of so many."""
        return Memory(
            (self.resident - before.resident) // count,
            (self.proportional - before.proportional) // count,
        )


def processor_seconds(pid: int) -> float:
    """Processor time that a process took so far."""
    taken = psutil.Process(pid).cpu_times()
    return taken.user + taken.system


@dataclass(frozen=True, slots=True)
class Written:
    """What the database took so far, or between two looks."""

    rows: Mapping[str, int]
    """Inserted, changed and deleted, by table; tables without any are left out."""
    transactions: int
    """Those that wrote, whoever began them."""

    @classmethod
    def of(cls, place: Place) -> Written:
        """So far. Sessions tell their rows some seconds late, transactions count at once."""
        with place.engine.connect() as connection:
            rows = {row.relname: int(row.written) for row in connection.execute(text(_WRITES))}
        return cls(rows, place.count(_TRANSACTIONS))

    def since(self, before: Written) -> Written:
        """What came in between."""
        rows = {table: count - before.rows.get(table, 0) for table, count in self.rows.items()}
        return Written(
            {table: count for table, count in sorted(rows.items()) if count},
            self.transactions - before.transactions,
        )


@dataclass(frozen=True, slots=True)
class Quiet:
    """A window in which nobody had anything to say."""

    seconds: float
    processor: float
    """Seconds of it that the process took."""
    written: Written

    @property
    def minutes(self) -> float:
        """How long it was."""
        return self.seconds / 60

    def rows_a_minute(self) -> Mapping[str, float]:
        """What was written, by table."""
        return {table: round(count / self.minutes, 1) for table, count in self.written.rows.items()}


def quiet(place: Place, pid: int, *, settle: float, seconds: float) -> Quiet:
    """Let what went before come to rest, then watch."""
    time.sleep(settle)
    began, taken, written = time.monotonic(), processor_seconds(pid), Written.of(place)
    time.sleep(seconds)
    return Quiet(
        time.monotonic() - began,
        processor_seconds(pid) - taken,
        Written.of(place).since(written),
    )


def processor_while(pid: int, *, settle: float, seconds: float) -> float:
    """Processor time a minute of a process that no database is behind."""
    time.sleep(settle)
    began, taken = time.monotonic(), processor_seconds(pid)
    time.sleep(seconds)
    spent = max(TICK_SECONDS, processor_seconds(pid) - taken)
    return spent / (time.monotonic() - began) * 60
