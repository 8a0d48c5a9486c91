"""A site for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from kici_scaler.service.runtime import Runtime
from tests.integration.warm.site import Site
from tests.support.patience import be_patient
from tests.support.rows import Rows


@pytest.fixture
def site(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """An empty cluster of one machine and one gateway."""
    be_patient(monkeypatch, rows)
    rows.machine()
    rows.gateway()
    return Site(rows, tmp_path, Runtime(rows.engine, "test"))
