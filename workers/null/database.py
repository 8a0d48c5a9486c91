"""The ledger's SQLite file, shared by any number of processes and threads."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

_BUSY_SECONDS = 30.0
_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS computes (
    agent_id TEXT PRIMARY KEY,
    installation_id TEXT NOT NULL,
    scaler TEXT NOT NULL,
    job_id TEXT,
    run_id TEXT,
    token INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('half-made', 'running', 'ended')),
    created_at REAL NOT NULL,
    cause TEXT,
    lines TEXT NOT NULL DEFAULT '[]'
) STRICT;
CREATE TABLE IF NOT EXISTS fences (
    agent_id TEXT PRIMARY KEY,
    token INTEGER NOT NULL,
    destroyed INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS history (
    number INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    event TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    job_id TEXT,
    token INTEGER NOT NULL,
    caller_pid INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS rules (
    number INTEGER PRIMARY KEY,
    call TEXT NOT NULL,
    moment TEXT NOT NULL,
    action TEXT NOT NULL,
    seconds REAL NOT NULL,
    error TEXT NOT NULL,
    message TEXT NOT NULL,
    job_caused INTEGER NOT NULL,
    scaler TEXT,
    agent_id TEXT,
    times INTEGER
) STRICT;
"""


class Database:
    """One connection for each thread of each process, opened at its first use.

    A connection never crosses a fork: the child opens its own and leaves the parent's be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connections: dict[tuple[int, int], sqlite3.Connection] = {}
        path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection, for single statements."""
        key = (os.getpid(), threading.get_ident())
        if key not in self._connections:
            self._connections[key] = self._open()
        return self._connections[key]

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that excludes every other writer from its start to its end."""
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        connection.row_factory = sqlite3.Row
        # Outlives any kill of a process; only a power loss may cost the last entries.
        connection.execute("PRAGMA synchronous = NORMAL")
        # The switch to WAL does not wait for other connections, so one makes it at a time.
        with FileLock(f"{self._path}.opening", timeout=_BUSY_SECONDS):
            if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(f"{_SCHEMA} PRAGMA user_version = {_VERSION};")
        return connection
