"""The report of fault runs counts what was broken, run by run and fault by fault."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.faults import report
from tests.faults.findings import Findings
from tests.faults.report import Run

DAY = date(2026, 3, 29)


def _rows(*runs: Run) -> dict[str, list[str]]:
    """The cells of each line of the page's tables, by what stands first."""
    lines = [line for line in report.page(runs).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in cells}


def test_runs_and_faults_are_told_with_their_seed_and_what_they_broke() -> None:
    rows = _rows(
        Run("test_a_run[one]", 8, Findings(lost=["job"]), {"kill": 2, "freeze": 1}, 7, on=DAY),
        Run("test_another", 4, Findings(doubled=["job"]), {"kill": 1}, on=DAY),
        Run("test_a_third", 1, Findings(), on=DAY),
    )
    assert rows["a run[one]"] == ["2026-03-29", "7", "3", "8", "0", "0", "0", "1", "0", "0"]
    assert rows["another"] == ["2026-03-29", "", "1", "4", "0", "1", "0", "0", "0", "0"]
    assert rows["a third"] == ["2026-03-29", "", "", "1", *["0"] * 6]
    assert rows["**all**"] == ["", "", "4", "13", "0", "1", "0", "1", "0", "0"]
    assert rows["kill"] == ["3", "2", "0", "1", "0", "1", "0", "0"]
    assert rows["freeze"] == ["1", "1", "0", "0", "0", "1", "0", "0"]


def test_every_kind_of_finding_has_a_column() -> None:
    assert set(report.KINDS) == set(Findings.__dataclass_fields__)


def test_a_session_replaces_its_own_runs_and_keeps_those_of_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "report.md"
    monkeypatch.setattr(report, "_runs", {})
    report.note(Run("test_first", 8, Findings(lost=["a job"]), {"kill": 2}, 7, on=DAY))
    report.note(Run("test_second", 1, Findings(), on=DAY))
    report.write(page)
    monkeypatch.setattr(report, "_runs", {})
    report.note(Run("test_first", 9, Findings(), {"kill": 3}, 7, on=DAY))
    report.write(page)
    told = page.read_text()
    assert "| first | 2026-03-29 | 7 | 3 | 9 | 0 | 0 | 0 | 0 | 0 | 0 |" in told
    assert "| second | 2026-03-29 |" in told


def test_a_run_whose_test_failed_is_told_as_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_runs", {})
    report.note(Run("test_first[one]", 8, Findings(), on=DAY))
    report.note_broken_off("tests/faults/test_it.py::test_first[one]")
    report.note_broken_off("tests/faults/test_it.py::test_that_noted_nothing")
    assert [(run.name, run.broken_off) for run in report.runs()] == [("test_first[one]", True)]
    assert "| first[one] (*broken off*) |" in report.page(report.runs())
