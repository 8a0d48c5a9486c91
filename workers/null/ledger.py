"""The null backend's ledger: what was started, stopped and refused, by whom and when.

It lies in a file of its own and asks nothing of the system it watches, so it is a witness
that the system cannot talk into anything: `live`, `leaked` and `doubled` are its testimony.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from workers.contract import ComputeRef, ExitCause, ExitKind, FoundCompute, SpawnOrder
from workers.errors import NotOwner, Permanent
from workers.null.database import Database
from workers.null.rules import Rules
from workers.null.witness import Doubled, Entry, Event, doubled


class Ledger:
    """The ledger in that file, made when it is missing."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path)
        self.rules = Rules(self._database)

    def make_half(self, order: SpawnOrder) -> None:
        """Leave something behind that does not run, unless there is more already."""
        with self._database.transaction() as connection:
            _require_token(connection, order.agent_id, order.lease_token, to_start=True)
            _raise_fence(connection, order.agent_id, order.lease_token)
            if _find(connection, order.agent_id) is None:
                _insert(connection, order, "half-made")
                _note(connection, Event.HALF_MADE, order.agent_id, order.job_id, order.lease_token)

    def start(self, order: SpawnOrder) -> None:
        """Make it run; found running, it is taken over.

        Raises:
            NotOwner: a higher token was here.
            Permanent: it ran and has ended.
        """
        with self._database.transaction() as connection:
            _require_token(connection, order.agent_id, order.lease_token, to_start=True)
            _raise_fence(connection, order.agent_id, order.lease_token)
            found = _find(connection, order.agent_id)
            if found is None:
                _insert(connection, order, "running", [f"hello {order.agent_id}"])
            elif found["state"] == "ended":
                raise Permanent(f"{order.agent_id} has ended", log_tail=json.loads(found["lines"]))
            else:
                connection.execute(
                    "UPDATE computes SET token = ?, state = 'running' WHERE agent_id = ?",
                    (order.lease_token, order.agent_id),
                )
            was_running = found is not None and found["state"] == "running"
            event = Event.TAKEN_OVER if was_running else Event.STARTED
            _note(connection, event, order.agent_id, order.job_id, order.lease_token)

    def stop(self, agent: ComputeRef, *, only_found: bool, remove: bool = True) -> bool:
        """End it, and unless told otherwise remove it and refuse its name; whether it was there.

        Raises:
            NotOwner: a higher token was here.
        """
        with self._database.transaction() as connection:
            _require_token(connection, agent.agent_id, agent.lease_token)
            found = _find(connection, agent.agent_id)
            is_ours = found is not None and found["installation_id"] == agent.installation_id
            if not is_ours and (only_found or found is not None):
                return False
            if is_ours and found is not None and found["state"] != "ended":
                _note(connection, Event.STOPPED, agent.agent_id, found["job_id"], agent.lease_token)
            _raise_fence(connection, agent.agent_id, agent.lease_token, destroyed=remove)
            if remove:
                connection.execute("DELETE FROM computes WHERE agent_id = ?", (agent.agent_id,))
            else:
                _end(connection, agent.agent_id, ExitCause(ExitKind.STOPPED))
            return is_ours

    def note_refusal(self, agent_id: str, token: int) -> None:
        """Write down that a call with an older token came."""
        _note(self._database.connection, Event.REFUSED, agent_id, None, token)

    def end(self, agent_id: str, cause: ExitCause) -> None:
        """Let it end by itself, for that cause; for tests."""
        with self._database.transaction() as connection:
            found = _find(connection, agent_id)
            if found is not None and found["state"] == "running":
                _end(connection, agent_id, cause)
                _note(connection, Event.ENDED, agent_id, found["job_id"], found["token"])

    def print(self, agent_id: str, lines: Sequence[str]) -> None:
        """Let it print; for tests."""
        with self._database.transaction() as connection:
            found = _find(connection, agent_id)
            if found is not None:
                kept = json.dumps([*json.loads(found["lines"]), *lines])
                connection.execute(
                    "UPDATE computes SET lines = ? WHERE agent_id = ?", (kept, agent_id)
                )

    def found(self, installation_id: str) -> tuple[FoundCompute, ...]:
        """Everything of that installation that is there."""
        rows = self._database.connection.execute(
            "SELECT * FROM computes WHERE installation_id = ? ORDER BY agent_id", (installation_id,)
        )
        return tuple(_as_found(row) for row in rows)

    def lines(self, agent: ComputeRef) -> tuple[str, ...]:
        """What it printed."""
        row = self._ours(agent)
        return tuple(json.loads(row["lines"])) if row else ()

    def cause(self, agent: ComputeRef) -> ExitCause | None:
        """How it ended; None while it runs."""
        row = self._ours(agent)
        if row is None:
            return ExitCause(ExitKind.ABSENT, detail="nothing of that name is here")
        if row["state"] == "half-made":
            return ExitCause(ExitKind.START_FAILED, detail="its start was cut short")
        if row["state"] == "running":
            return None
        told = json.loads(row["cause"])
        return ExitCause(
            ExitKind(told["kind"]),
            told["exit_code"],
            told["signal"],
            told["detail"],
            tuple(json.loads(row["lines"])),
            told["spool"],
        )

    def _ours(self, agent: ComputeRef) -> sqlite3.Row | None:
        row = _find(self._database.connection, agent.agent_id)
        return row if row and row["installation_id"] == agent.installation_id else None

    def history(self) -> tuple[Entry, ...]:
        """Everything that happened, in order."""
        rows = self._database.connection.execute("SELECT * FROM history ORDER BY number")
        return tuple(Entry(**{**dict(row), "event": Event(row["event"])}) for row in rows)

    def live(self) -> tuple[str, ...]:
        """The agents that run now."""
        rows = self._database.connection.execute(
            "SELECT agent_id FROM computes WHERE state = 'running' ORDER BY agent_id"
        )
        return tuple(row["agent_id"] for row in rows)

    def leaked(self, owned: Collection[str]) -> tuple[str, ...]:
        """The agents of which anything is there and that no one in `owned` stands for."""
        rows = self._database.connection.execute("SELECT agent_id FROM computes ORDER BY agent_id")
        return tuple(row["agent_id"] for row in rows if row["agent_id"] not in owned)

    def doubled(self) -> tuple[Doubled, ...]:
        """Jobs that had two agents at one moment, and agents that were started twice."""
        return doubled(self.history())


def _find(connection: sqlite3.Connection, agent_id: str) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM computes WHERE agent_id = ?", (agent_id,)
    ).fetchone()
    return row


def _insert(
    connection: sqlite3.Connection, order: SpawnOrder, state: str, lines: Sequence[str] = ()
) -> None:
    connection.execute(
        "INSERT INTO computes (agent_id, installation_id, scaler, job_id, run_id, token, state,"
        " created_at, lines) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            order.agent_id,
            order.installation_id,
            order.scaler,
            order.job_id,
            order.run_id,
            order.lease_token,
            state,
            time.time(),
            json.dumps(lines),
        ),
    )


def _end(connection: sqlite3.Connection, agent_id: str, cause: ExitCause) -> None:
    told = {
        "kind": cause.kind,
        "exit_code": cause.exit_code,
        "signal": cause.signal,
        "detail": cause.detail,
        "spool": cause.spool,
    }
    connection.execute(
        "UPDATE computes SET state = 'ended', cause = ? WHERE agent_id = ? AND state <> 'ended'",
        (json.dumps(told), agent_id),
    )


def _require_token(
    connection: sqlite3.Connection, agent_id: str, token: int, *, to_start: bool = False
) -> None:
    fence = connection.execute("SELECT * FROM fences WHERE agent_id = ?", (agent_id,)).fetchone()
    if fence is None or token > fence["token"]:
        return
    if token < fence["token"] or (to_start and fence["destroyed"]):
        raise NotOwner(f"{agent_id}: lease token {token} is not newer than {fence['token']}")


def _raise_fence(
    connection: sqlite3.Connection, agent_id: str, token: int, *, destroyed: bool = False
) -> None:
    connection.execute(
        "INSERT INTO fences (agent_id, token, destroyed) VALUES (?, ?, ?) ON CONFLICT (agent_id)"
        " DO UPDATE SET token = excluded.token, destroyed = excluded.destroyed",
        (agent_id, token, destroyed),
    )


def _note(
    connection: sqlite3.Connection, event: Event, agent_id: str, job_id: str | None, token: int
) -> None:
    connection.execute(
        "INSERT INTO history (at, event, agent_id, job_id, token, caller_pid)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (time.time(), event, agent_id, job_id, token, os.getpid()),
    )


def _as_found(row: sqlite3.Row) -> FoundCompute:
    return FoundCompute(
        installation_id=row["installation_id"],
        scaler=row["scaler"],
        agent_id=row["agent_id"],
        job_id=row["job_id"],
        run_id=row["run_id"],
        lease_token=row["token"],
        running=row["state"] == "running",
        created_at=datetime.fromtimestamp(row["created_at"], UTC),
        name=row["agent_id"],
        ref={"ledger": row["agent_id"]},
    )
