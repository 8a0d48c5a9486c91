"""A network of a test's own: whatever it does to bridges and rules ends with it."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CLONE_NEWNET = 0x40000000

NEEDED = ("nft", "ip")


def why_not() -> str | None:
    """Why this test process cannot have a network of its own; None when it can."""
    if os.geteuid() != 0:
        return "NOT TESTED: a network namespace needs root"
    missing = [each for each in NEEDED if shutil.which(each) is None]
    if missing:
        return f"NOT TESTED: {', '.join(missing)} is not installed"
    if not Path("/dev/net/tun").exists():
        return "NOT TESTED: there is no /dev/net/tun"
    return None


@contextmanager
def own_network() -> Iterator[None]:
    """This thread, and what it starts meanwhile, in an empty network namespace."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            pytest.skip(f"NOT TESTED: {os.strerror(ctypes.get_errno())}")
        yield
    finally:
        assert libc.setns(before, CLONE_NEWNET) == 0
        os.close(before)
