"""What every use case is handed: the database, the ports, and who is acting."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from sqlalchemy import Engine

from kici_scaler.service.ports import Hints, Mutex, NoHints, Patience, Turn


class NoMutex:
    """No Redis in the way: every admission meets the database lock directly."""

    def held(self, patience: Patience = Patience.AT_ONCE) -> AbstractContextManager[Turn]:
        return nullcontext(Turn(None))


@dataclass(frozen=True, slots=True)
class Runtime:
    """The outside of a process as the use cases see it.

    `owner` names this process for one run of it (host, process id and a random part), so
    that what it holds can be told from what an earlier process of the same id held.
    """

    engine: Engine
    owner: str
    hints: Hints = field(default_factory=NoHints)
    mutex: Mutex = field(default_factory=NoMutex)
