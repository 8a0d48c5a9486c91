"""At the end of a session: the fault report, printed and, if asked for, written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults import report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the report; `KICI_FAULT_REPORT` names the file it is also written to."""
    if not report.runs():
        return
    terminalreporter.section("fault report")
    terminalreporter.write_line(report.page(report.runs()).removeprefix(report.HEAD))
    if path := os.environ.get("KICI_FAULT_REPORT"):
        report.write(Path(path))
