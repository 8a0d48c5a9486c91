"""Statements that a session repeats are parsed and planned by the server once.

Planning is the larger part of what a short statement costs. The driver knows nothing of prepared
statements, so what is sent is SQL: `PREPARE`, and `EXECUTE` with the values. Texts are the same
for every call, so a statement is known by its text, and its name is made of it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import structlog
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.interfaces import ExceptionContext

log = structlog.get_logger(__name__)

USES_BEFORE = 2
"""How often a session runs a statement the plain way first; most run a single time."""
MOST = 200
"""Statements that one session keeps; each takes some 50 KB of the server's memory."""

_CAN_BE = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b")
_PARAMETER = re.compile(r"%\((\w+)\)s")
_NOT_THE_SAME_SESSION = frozenset({"26000", "42P05"})
"""SQLSTATEs: no such prepared statement, and one that is there already."""
_NOT_SUPPORTED = "0A000"
"""SQLSTATE of, among others, a prepared statement whose result a schema change has changed."""
_INFO = "kici_prepared"


@dataclass(frozen=True, slots=True)
class Forms:
    """How one statement is prepared and run."""

    name: str
    prepare: str
    execute: str


@lru_cache(maxsize=1024)
def forms_of(statement: str) -> Forms | None:
    """Both forms of a statement in the driver's notation; None if it cannot be prepared."""
    if _CAN_BE.match(statement) is None or ";" in statement:
        return None
    names = list(dict.fromkeys(_PARAMETER.findall(statement)))
    places = {name: f"${place}" for place, name in enumerate(names, 1)}
    body = _PARAMETER.sub(lambda found: places[found[1]], statement)
    name = f"kici_{hashlib.sha256(statement.encode()).hexdigest()[:16]}"
    values = ", ".join(f"%({each})s" for each in names)
    return Forms(name, f"PREPARE {name} AS {body}", f"EXECUTE {name}" + f"({values})" * bool(names))


@dataclass(slots=True)
class _Session:
    """What one session of the server was told, by names of statements."""

    uses: Counter[str] = field(default_factory=Counter)
    prepared: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    """An error met them while they were prepared, so they may be there or not."""

    def prepares(self, name: str, uses_before: int) -> bool:
        """Whether this use is the one that prepares it."""
        if name in self.doubtful or len(self.prepared) >= MOST:
            return False
        self.uses[name] += 1
        return self.uses[name] > uses_before


@dataclass(slots=True)
class _Preparing:
    """What one engine does about it, until it finds that its sessions are not its own."""

    uses_before: int
    goes_on: bool = True

    def rewrite(
        self, connection: Connection, statement: str, parameters: Any, *, many: bool
    ) -> tuple[str, Any]:
        """What is sent in a statement's place, and with which values."""
        if many or not self.goes_on or not isinstance(parameters, dict):
            return statement, parameters
        forms = forms_of(statement)
        if forms is None:
            return statement, parameters
        session = connection.connection.info.setdefault(_INFO, _Session())
        if forms.name in session.prepared:
            return forms.execute, parameters
        if not session.prepares(forms.name, self.uses_before):
            return statement, parameters
        session.prepared.add(forms.name)
        return f"{forms.prepare}; {forms.execute}", parameters

    def judge(self, context: ExceptionContext) -> None:
        """A session that lost what was prepared is of no use; nothing came of its transaction."""
        _doubt(context)
        code = getattr(context.original_exception, "pgcode", None)
        if code in _NOT_THE_SAME_SESSION:
            self._give_up()
        elif code != _NOT_SUPPORTED or not str(context.statement).startswith("EXECUTE "):
            return
        context.is_disconnect = True

    def _give_up(self) -> None:
        if self.goes_on:
            log.warning(
                "statements are not prepared any more: sessions are shared with others",
                hint="expected once a process behind a pooler in transaction mode",
            )
        self.goes_on = False


def _doubt(context: ExceptionContext) -> None:
    sent, connection = context.statement, context.connection
    if sent is None or not sent.startswith("PREPARE ") or connection is None:
        return
    name = sent.split(maxsplit=2)[1]
    if not connection.invalidated:
        session = connection.connection.info[_INFO]
        session.prepared.discard(name)
        session.doubtful.add(name)


def prepare_repeated(engine: Engine, *, uses_before: int = USES_BEFORE) -> None:
    """Have the sessions of this engine prepare what they repeat.

    Where a pooler gives each transaction another session of the server, the first statement that
    is not found there ends its transaction as if the server had gone away, and from then on this
    engine prepares nothing.
    """
    preparing = _Preparing(uses_before)

    def rewrite(  # The library's signature.
        connection: Connection, _cursor: Any, statement: str, parameters: Any, _: Any, many: bool
    ) -> tuple[str, Any]:
        return preparing.rewrite(connection, statement, parameters, many=many)

    event.listen(engine, "before_cursor_execute", rewrite, retval=True)
    event.listen(engine, "handle_error", preparing.judge)
