"""Keeps the fault report of a session: a plugin, as fault runs stand in more than one folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults import report as fault_report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say of a run whose test failed that it did."""
    if report.failed:
        fault_report.note_broken_off(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the report; `KICI_FAULT_REPORT` names the file it is also written to."""
    runs = fault_report.runs()
    if not runs:
        return
    terminalreporter.section("fault report")
    terminalreporter.write_line(fault_report.page(runs).removeprefix(fault_report.HEAD))
    if path := os.environ.get("KICI_FAULT_REPORT"):
        fault_report.write(Path(path))
