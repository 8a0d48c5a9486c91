"""Takes work as slots allow and runs it, one more time whenever somebody may have added some."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

import structlog

from kici_scaler.errors import KiciError

log = structlog.get_logger(__name__)

Order = TypeVar("Order")

GATHER_SECONDS: Final = 0.01
"""How long free slots wait until they are half of all, once the rows had more to do than that."""
LONGEST_TAKE_SECONDS = 15.0
"""A little more than the database lets a transaction take."""


class Pump(Generic[Order]):
    """A bounded pool that is filled from rows.

    `prime` takes what free slots allow and hands each order to a thread of its own; it
    returns without waiting for them. When an order ends and the last take left work
    behind, the pump primes itself, after a moment in which more orders may end: a take of
    many costs what one of a single order does. It does not wait for all of them, so what ends
    and what begins overlap. Calls in between collapse into one more round.

    Args:
        take: takes up to that many orders from the rows; and whether it left some behind
            that wait for a slot.
        act: does one order and applies its result; its errors are logged here.
    """

    def __init__(
        self,
        name: str,
        slots: int,
        take: Callable[[int], tuple[Sequence[Order], bool]],
        act: Callable[[Order], None],
    ) -> None:
        self._name = name
        self._take = take
        self._act = act
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix=name)
        self._state = threading.Condition()
        self._slots = self._free = slots
        self._running: dict[int, Order] = {}
        self._taking = False
        self._again = False
        self._hungry = False
        self._gathering = 0
        self._ended_meanwhile = False
        self._closed = False

    def prime(self) -> int:
        """Take and start what fits; returns how many orders were started by this call."""
        started = 0
        while True:
            with self._state:
                if self._taking:
                    self._again = True
                    return started
                if self._closed or self._free == 0:
                    self._hungry = True
                    return started
                self._taking, self._again, self._ended_meanwhile = True, False, False
                self._state.notify_all()
                room = self._free
            try:
                orders, left_some = self._take(room)
            except BaseException:
                with self._state:
                    self._taken(left_some=True)
                raise
            with self._state:
                # What was left may have waited for the very slot that was freed meanwhile.
                again = self._again or (left_some and self._ended_meanwhile)
                self._taken(left_some=left_some)
                self._hand_out(orders)
                if again and not self._again:
                    self._gather()
            started += len(orders)
            if not again:
                return started

    def close(self, *, wait: bool) -> None:
        """Take nothing more; optionally wait until what runs has been applied.

        What is being taken at this moment still runs.
        """
        with self._state:
            self._closed = True
            self._state.notify_all()
            self._state.wait_for(lambda: not self._taking, LONGEST_TAKE_SECONDS)
        self._pool.shutdown(wait=wait)

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._closed

    @property
    def running(self) -> tuple[Order, ...]:
        """The orders that are being done right now."""
        with self._state:
            return tuple(self._running.values())

    def _hand_out(self, orders: Sequence[Order]) -> None:
        for order in orders:
            self._pool.submit(self._run, order)
            self._running[id(order)] = order
            self._free -= 1

    def _gather(self) -> None:
        """Let more orders end; whoever else primes meanwhile ends the wait by what it takes."""
        self._gathering += 1
        try:
            self._state.wait_for(
                lambda: self._closed or self._taking or self._free * 2 >= self._slots,
                GATHER_SECONDS,
            )
        finally:
            self._gathering -= 1

    def _taken(self, *, left_some: bool) -> None:
        self._taking = False
        self._hungry = left_some
        self._state.notify_all()

    def _run(self, order: Order) -> None:
        try:
            with structlog.contextvars.bound_contextvars(**ids_of(order)):
                self._do(order)
        finally:
            with self._state:
                self._free += 1
                self._running.pop(id(order), None)
                self._ended_meanwhile = True
                # Whoever takes at this moment gathers after it, if anything was left.
                gather = self._hungry and not (self._gathering or self._taking or self._closed)
                if gather:
                    self._gather()
                elif self._gathering:
                    self._state.notify_all()
        if gather:
            self._prime_again()

    def _do(self, order: Order) -> None:
        try:
            self._act(order)
        except KiciError as error:
            log.warning("step not recorded; its lease will end", pump=self._name, error=str(error))
        except Exception:  # a thread's last line: log it, keep the slot
            log.exception("step failed unexpectedly; its lease will end", pump=self._name)

    def _prime_again(self) -> None:
        try:
            self.prime()
        except KiciError as error:
            log.warning("nothing more taken for now", pump=self._name, error=str(error))
        except Exception:  # a thread's last line: the next hint primes again
            log.exception("nothing more taken for now", pump=self._name)


_IDS: Final = {
    "agent_id": "agent", "job_id": "job", "run_id": "run", "scaler": "scaler",
    "revision_id": "revision",
}  # fmt: skip
"""What a row calls them, and what a line of the log does."""


def ids_of(order: object) -> dict[str, object]:
    """The ids that every line says which is logged while an order is being done."""
    row = getattr(order, "row", order)
    found = {name: getattr(row, column, None) for column, name in _IDS.items()}
    return {name: value for name, value in found.items() if value is not None}
