"""A process that reloads a file and ends: `python -m tests.integration.reload.child FILE`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kici_scaler.service import reload
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.engine import make_engine


def main() -> None:
    """Let the file take over, in the database that the environment names."""
    runtime = Runtime(make_engine(os.environ["DATABASE"], application="child"), "child")
    candidate = reload.read(runtime.engine, Path(sys.argv[1]))
    reload.apply(runtime, candidate, author="child")


if __name__ == "__main__":
    main()
