"""A yard for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kici_scaler.service.runtime import Runtime
from tests.integration.reload.yard import KINDS, Yard
from tests.support.admissions import History
from tests.support.patience import be_patient
from tests.support.rows import MACHINE, Rows


@pytest.fixture
def yard(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    """An empty cluster of one machine, which serves two types, and one gateway."""
    for kind in KINDS:
        rows.machine(kind=kind)
    rows.gateway()
    be_patient(monkeypatch, rows)
    history = History(rows)
    history.install()
    yield Yard(rows, Runtime(rows.engine, f"test/{MACHINE}"), history)
    history.remove()
