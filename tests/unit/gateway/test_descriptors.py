"""A gateway may have as many sockets open as the kernel lets it."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import resource
from kici_scaler.gateway.descriptors import allow_many
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
assert allow_many() == hard
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
"""


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
