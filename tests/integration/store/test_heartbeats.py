"""A gateway's heartbeat, while agents return to it in one long crowd."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection, text

from kici_scaler.store import gateways
from tests.support.rows import Rows

CROWD = 4
PATIENCE_SECONDS = 4.0
"""For twenty of them; behind the crowd each takes most of a second."""


def test_a_crowd_of_registrations_holds_up_no_heartbeat(rows: Rows) -> None:
    rows.gateway("gw-1")
    enough = threading.Event()

    def register(connection: Connection) -> None:
        assert gateways.is_alive(connection, "gw-1")
        connection.execute(text("SELECT pg_sleep(0.05)"))

    def register_all() -> None:
        while not enough.is_set():
            rows.call(register)

    with ThreadPoolExecutor(CROWD) as pool:
        crowd = [pool.submit(register_all) for _ in range(CROWD)]
        try:
            begun = time.monotonic()
            for _ in range(20):
                assert rows.call(gateways.heartbeat, "gw-1")
            took = time.monotonic() - begun
        finally:
            enough.set()
        for each in crowd:
            each.result()
    assert took < PATIENCE_SECONDS
