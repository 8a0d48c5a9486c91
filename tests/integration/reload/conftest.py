"""A yard for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kici_scaler.service.runtime import Runtime
from kici_scaler.store import settings
from tests.integration.reload.yard import KINDS, Yard
from tests.support.admissions import History
from tests.support.rows import MACHINE, Rows


@pytest.fixture
def yard(rows: Rows) -> Iterator[Yard]:
    """An empty cluster of one machine, which serves two types, and one gateway."""
    for kind in KINDS:
        rows.machine(kind=kind)
    rows.gateway()
    # Nobody beats here, however long a test may take.
    rows.call(settings.put, "machine_stale_seconds", 3_600.0, changed_by="test")
    history = History(rows)
    history.install()
    yield Yard(rows, Runtime(rows.engine, f"test/{MACHINE}"), history)
    history.remove()
