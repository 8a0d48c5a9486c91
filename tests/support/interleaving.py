"""Runs transactions against each other, statement by statement, in an order a seed decides.

Every actor is a thread. Before each statement and each COMMIT it stops at a gate; the
conductor lets one through at a time. An actor that waits for another's lock is left
waiting, and the others go on, so what really blocks really blocks.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, event, text

_LOOK_SECONDS: Final = 0.002
_LONGEST_SECONDS: Final = 60.0
_BLOCKED: Final = text("""
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
""")


class _Actor:
    """One thread of an interleaving."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work
        self.go = threading.Event()
        self.is_at_gate = False
        self.is_done = False
        self.pid = 0
        self.error: BaseException | None = None


class Interleaving:
    """Runs sets of actors on one engine; one set at a time."""

    def __init__(self, engine: Engine, watcher: Connection) -> None:
        self._engine = engine
        self._watcher = watcher
        self._changed = threading.Condition()
        self._here = threading.local()

    def run(self, seed: int, works: Sequence[Callable[[], object]]) -> list[BaseException]:
        """Let these works run against each other; what they raised.

        Raises:
            AssertionError: they did not end in time.
        """
        chance = random.Random(seed)
        actors = [_Actor(work) for work in works]
        threads = [threading.Thread(target=self._play, args=(each,), daemon=True)
                   for each in actors]  # fmt: skip
        for thread in threads:
            thread.start()
        self._conduct(chance, actors)
        for thread in threads:
            thread.join()
        return [each.error for each in actors if each.error is not None]

    def gate(self, pid: int) -> None:
        """Wait for the conductor; other threads pass freely."""
        actor: _Actor | None = getattr(self._here, "actor", None)
        if actor is None:
            return
        with self._changed:
            actor.pid, actor.is_at_gate = pid, True
            self._changed.notify_all()
        assert actor.go.wait(_LONGEST_SECONDS), "the conductor has gone"
        actor.go.clear()

    def _play(self, actor: _Actor) -> None:
        self._here.actor = actor
        try:
            actor.work()
        except BaseException as error:  # noqa: BLE001 - whatever it was is told to the test
            actor.error = error
        finally:
            with self._changed:
                actor.is_done = True
                self._changed.notify_all()

    def _conduct(self, chance: random.Random, actors: Sequence[_Actor]) -> None:
        moving = set(actors)
        rounds_left = int(_LONGEST_SECONDS / _LOOK_SECONDS)
        while not all(each.is_done for each in actors):
            self._until_still(moving)
            ready = [each for each in actors if each.is_at_gate and not each.is_done]
            if ready:
                chosen = chance.choice(ready)
                chosen.is_at_gate = False
                moving.add(chosen)
                chosen.go.set()
            rounds_left -= 1
            assert rounds_left > 0, "the actors did not end"

    def _until_still(self, moving: set[_Actor]) -> None:
        """Until everybody let through is at a gate again, done, or waits for a lock."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: _all_stopped(moving), _LOOK_SECONDS):
                    moving.clear()
                    return
            blocked = set(self._watcher.execute(_BLOCKED).scalars())
            with self._changed:
                left = {each for each in moving if not (each.is_at_gate or each.is_done)}
                if all(each.pid in blocked for each in left) and len(left) < len(moving) + 1:
                    moving.intersection_update(left)
                    return


def _all_stopped(moving: set[_Actor]) -> bool:
    return all(each.is_at_gate or each.is_done for each in moving)


@contextmanager
def interleaving(engine: Engine) -> Iterator[Interleaving]:
    """Gates on this engine for as long as the context lasts."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
        found = Interleaving(engine, watcher)

        def before_statement(connection: Connection, *_: Any) -> None:
            found.gate(connection.connection.dbapi_connection.info.backend_pid)  # type: ignore[union-attr]  # a driver's own attribute

        def before_commit(connection: Connection) -> None:
            found.gate(connection.connection.dbapi_connection.info.backend_pid)  # type: ignore[union-attr]  # a driver's own attribute

        event.listen(engine, "before_cursor_execute", before_statement)
        event.listen(engine, "commit", before_commit)
        try:
            yield found
        finally:
            event.remove(engine, "before_cursor_execute", before_statement)
            event.remove(engine, "commit", before_commit)
