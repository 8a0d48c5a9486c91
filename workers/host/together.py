"""One transaction for what many threads have to say at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

from kici_scaler.store.engine import DatabaseUnreachable

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Together(Generic[Item, Answer]):
    """Does for whoever comes while something is being done what all of them want, at once.

    Whoever finds nobody at it does its own alone, and at once. An error of one must not become
    one of the others: they are done one by one then, unless the database is away for all.

    Args:
        do: does all of these and answers each, in their order.
    """

    def __init__(self, do: Callable[[Sequence[Item]], Sequence[Answer]]) -> None:
        self._do = do
        self._turn = Lock()
        self._lock = Lock()
        self._waiting: list[tuple[Item, Future[Answer]]] = []

    def __call__(self, item: Item) -> Answer:
        """Do this; returns or raises what `do` did for it."""
        answer: Future[Answer] = Future()
        with self._lock:
            self._waiting.append((item, answer))
        with self._turn:
            if not answer.done():
                with self._lock:
                    batch, self._waiting = self._waiting, []
                self._answer(batch)
        return answer.result()

    def _answer(self, batch: Sequence[tuple[Item, Future[Answer]]]) -> None:
        try:
            answers = self._do([item for item, _ in batch])
        except BaseException as error:
            alone = len(batch) == 1 or isinstance(error, DatabaseUnreachable)
            for each in batch:
                if alone:
                    each[1].set_exception(error)
                else:
                    self._answer([each])
            if not isinstance(error, Exception):
                raise
        else:
            for (_, answer), given in zip(batch, answers, strict=True):
                answer.set_result(given)
