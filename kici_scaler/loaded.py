"""What a process loaded as it began stays for good."""

from __future__ import annotations

import gc


def set_apart() -> None:
    """Have nobody wait while it is looked through for garbage: tens of milliseconds each time."""
    gc.collect()
    gc.freeze()
