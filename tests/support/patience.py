"""Bounds that a slow machine must not reach in tests that are about something else."""

from __future__ import annotations

import pytest

from kici_scaler.service import admit, reload, scaler_control
from kici_scaler.store import settings
from tests.support.rows import Rows

SECONDS = 60.0


def be_patient(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> None:
    """Let holders of the section take their time, and machines be up that nobody beats for."""
    monkeypatch.setattr(admit, "PASS_SECONDS", SECONDS)
    for module in (reload, scaler_control):
        monkeypatch.setattr(module, "SECTION_SECONDS", SECONDS)
    rows.call(settings.put, "machine_stale_seconds", 3_600.0, changed_by="test")
