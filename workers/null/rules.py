"""Programming the null backend: what goes wrong, at which moment of which call."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from dataclasses import dataclass
from enum import StrEnum

from workers.contract import Deadline
from workers.errors import BackendError, NotDone, NotOwner, OutcomeUnknown, Permanent
from workers.null.database import Database


class Moment(StrEnum):
    """When a rule applies within a call."""

    BEFORE = "before"
    """Nothing was done."""
    HALF = "half"
    """Of a spawn: something is there that does not run. Of a destroy: it ended, and is there."""
    AFTER = "after"
    """All was done, and the caller does not know."""


class Action(StrEnum):
    """What a rule does."""

    DELAY = "delay"
    """Wait for `seconds`, at most until the deadline; past it the call fails."""
    HANG = "hang"
    """Wait for `seconds` whatever the deadline."""
    ERROR = "error"
    CRASH = "crash"
    """Kill the calling process, as `kill -9` would."""


_ERRORS: dict[str, type[BackendError]] = {
    each.__name__: each for each in (NotOwner, NotDone, OutcomeUnknown, Permanent)
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to go wrong.

    `call` is a method of the contract. `scaler` and `agent_id` narrow it; None is any.
    `times` is how often it applies; None is always. `error` is the class that `ERROR` raises.
    """

    call: str
    action: Action
    moment: Moment = Moment.BEFORE
    seconds: float = 0.0
    error: type[BackendError] = OutcomeUnknown
    message: str = "as programmed"
    job_caused: bool = False
    scaler: str | None = None
    agent_id: str | None = None
    times: int | None = 1


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the contract that is going on."""

    name: str
    scaler: str | None
    agent_id: str | None
    deadline: Deadline


class Rules:
    """The rules in a ledger; any process may add one at any time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, rule: Rule) -> None:
        """Apply this from now on, after those that were there before it."""
        self._database.connection.execute(
            "INSERT INTO rules (call, moment, action, seconds, error, message, job_caused,"
            " scaler, agent_id, times) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                rule.call,
                rule.moment,
                rule.action,
                rule.seconds,
                rule.error.__name__,
                rule.message,
                rule.job_caused,
                rule.scaler,
                rule.agent_id,
                rule.times,
            ),
        )

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._database.connection.execute("DELETE FROM rules")

    def has(self, call: Call, moment: Moment) -> bool:
        """Whether some rule waits for that moment of that call."""
        return _first(self._database.connection, call, moment) is not None

    def apply(self, call: Call, moment: Moment) -> None:
        """Do what the first rule for that moment says, if there is one.

        Raises:
            BackendError: it says so, or the deadline passed during a delay.
        """
        if not self.has(call, moment):
            return
        with self._database.transaction() as connection:
            rule = _first(connection, call, moment)
            if rule is not None:
                connection.execute(
                    "UPDATE rules SET times = times - 1 WHERE number = ?", (rule["number"],)
                )
        if rule is not None:
            _do(rule, call, moment)


def _first(connection: sqlite3.Connection, call: Call, moment: Moment) -> sqlite3.Row | None:
    found: sqlite3.Row | None = connection.execute(
        "SELECT * FROM rules WHERE call = ? AND moment = ? AND (times IS NULL OR times > 0)"
        " AND (scaler IS NULL OR scaler = ?) AND (agent_id IS NULL OR agent_id = ?)"
        " ORDER BY number LIMIT 1",
        (call.name, moment, call.scaler, call.agent_id),
    ).fetchone()
    return found


def _do(rule: sqlite3.Row, call: Call, moment: Moment) -> None:
    action, seconds = Action(rule["action"]), float(rule["seconds"])
    if action is Action.CRASH:
        os.kill(os.getpid(), signal.SIGKILL)
    if action is Action.ERROR:
        raise _ERRORS[rule["error"]](rule["message"], job_caused=bool(rule["job_caused"]))
    if action is Action.HANG:
        time.sleep(seconds)
        return
    time.sleep(min(seconds, call.deadline.remaining))
    if call.deadline.has_passed:
        late = NotDone if moment is Moment.BEFORE else OutcomeUnknown
        raise late(f"`{call.name}` did not end by its deadline")
