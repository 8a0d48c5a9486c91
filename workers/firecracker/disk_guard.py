"""Room on the disks of microVMs: what nobody needs goes before anybody is refused for it."""

from __future__ import annotations

import structlog

from workers.contract import Deadline
from workers.firecracker import chroot
from workers.firecracker.stock import Stock

_log = structlog.get_logger()


def see_to_room(stock: Stock, deadline: Deadline) -> None:
    """Where room is short, take away first what nobody owns, and then what has ended.

    What has ended is taken away by its row in any case; here its last words are lost for it.

    Raises:
        NotDone: that was not enough; nothing can be started.
    """
    for base in sorted(stock.bases):
        for step in (stock.sweep, stock.reap_ended):
            if chroot.free_bytes(base) >= chroot.KEPT_FREE_BYTES:
                break
            _log.warning("little room for microVMs; removing what nobody needs", base=str(base))
            step(deadline)
        chroot.require_room(base)
