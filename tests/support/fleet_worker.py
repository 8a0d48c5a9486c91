"""A backend worker as a process of its own, so that it can be killed.

`python -m tests.support.fleet_worker DATABASE INSTALLATION NAME FOLDER`
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from kici_scaler.errors import KiciError
from kici_scaler.store.engine import make_engine
from tests.support.fleets import Worker

PRIME_SECONDS = 0.5


def main(database_url: str, installation_id: str, name: str, folder: str) -> None:
    """Work until killed."""
    engine = make_engine(database_url, application=name, pool_size=20)
    worker = Worker(engine, installation_id, name, Path(folder)).open()
    pause = threading.Event()
    while not pause.wait(PRIME_SECONDS):
        try:
            worker.prime()
        except KiciError as error:
            print(f"not primed: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
