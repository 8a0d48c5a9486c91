"""The report of fault runs counts what was broken, run by run and fault by fault."""

from __future__ import annotations

from tests.faults import report
from tests.faults.findings import Findings
from tests.faults.report import Run


def _rows(*runs: Run) -> dict[str, list[str]]:
    """The cells of each line of the page's tables, by what stands first."""
    lines = [line for line in report.page(runs).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in cells}


def test_runs_and_faults_are_told_with_their_seed_and_what_they_broke() -> None:
    rows = _rows(
        Run("test_a_run[one]", 8, Findings(lost=["job"]), {"kill": 2, "freeze": 1}, 7),
        Run("test_another", 4, Findings(doubled=["job"]), {"kill": 1}),
        Run("test_a_third", 1, Findings()),
    )
    assert rows["a run[one]"] == ["7", "3", "8", "0", "0", "0", "1", "0", "0"]
    assert rows["another"] == ["", "1", "4", "0", "1", "0", "0", "0", "0"]
    assert rows["a third"] == ["", "", "1", *["0"] * 6]
    assert rows["**all**"] == ["", "4", "13", "0", "1", "0", "1", "0", "0"]
    assert rows["kill"] == ["3", "2", "0", "1", "0", "1", "0", "0"]
    assert rows["freeze"] == ["1", "1", "0", "0", "0", "1", "0", "0"]


def test_every_kind_of_finding_has_a_column() -> None:
    assert set(report.KINDS) == set(Findings.__dataclass_fields__)
