"""Looks at compute, several at once and each agent once at a time.

A look asks a runtime or a host that may not answer. So their number is bounded, and so is the
time that one request for looks takes: what was not begun by then is asked for again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import structlog

from kici_scaler.service.inspect import InspectOrder

log = structlog.get_logger(__name__)

LOOKS_AT_ONCE = 8
LONGEST_SECONDS = 60.0
"""For one request; well below the time after which a broker hands a task out again."""


@dataclass(slots=True)
class Looks:
    """Has compute looked at.

    Args:
        look: whether the spawn was ended for what was found; bounded in time itself.
    """

    look: Callable[[InspectOrder], bool]
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="look")
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _looked_at: set[str] = field(default_factory=set)

    def at(self, orders: Iterable[InspectOrder], *, within: float = LONGEST_SECONDS) -> int:
        """Look at these, but for those that are being looked at; how many had ended."""
        begun = {self._pool.submit(self._one, each): each for each in self._claim(orders)}
        done, late = wait(begun, within)
        dropped = [begun[each].row.agent_id for each in late if each.cancel()]
        self._release(dropped)
        if late:
            log.warning("looks are slow; more are asked for later", dropped=len(dropped))
        return sum(each.result() for each in done)

    def close(self) -> None:
        """Begin no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _claim(self, orders: Iterable[InspectOrder]) -> list[InspectOrder]:
        with self._lock:
            wanted = {each.row.agent_id: each for each in orders}
            fresh = [wanted[agent] for agent in wanted.keys() - self._looked_at]
            self._looked_at.update(each.row.agent_id for each in fresh)
        return fresh

    def _one(self, order: InspectOrder) -> bool:
        try:
            return self.look(order)
        except Exception:  # one that cannot be looked at must not hide the others
            log.exception("compute could not be looked at", agent_id=order.row.agent_id)
            return False
        finally:
            self._release([order.row.agent_id])

    def _release(self, agent_ids: Iterable[str]) -> None:
        with self._lock:
            self._looked_at.difference_update(agent_ids)
