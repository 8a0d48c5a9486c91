"""What the kernel wrote about processes it killed for want of memory.

Podman does not pass it on, and Docker forgets it when it is restarted meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path

_KERNEL_LOG = Path("/dev/kmsg")
_RECORD_BYTES = 8192


def killed_for_memory(container_id: str, log: Path = _KERNEL_LOG) -> bool:
    """Whether the kernel says that it killed a process of that container.

    False too where the log cannot be read: that takes root, and a log of this very kernel.
    """
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return any(_tells(record, container_id) for record in _records(descriptor))
    finally:
        os.close(descriptor)


def _tells(record: str, container_id: str) -> bool:
    return "oom-kill:" in record and container_id in record


def _records(descriptor: int) -> list[str]:
    """All records that the kernel still has; each read gives one."""
    records: list[str] = []
    while True:
        try:
            data = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return records
        except BrokenPipeError:
            # This one was overwritten while we read; the next read goes on after it.
            continue
        except OSError:
            return records
        if not data:
            return records
        records.append(data.decode(errors="replace"))
