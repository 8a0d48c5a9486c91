"""What fault runs found, as a page: faults injected, jobs, and everything that broke."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from tests.faults.findings import Findings

HEAD: Final = """\
# Fault report

Written by `make faults` and `make soak`, from what the last run of each test found; zeros are what
is wanted, and a run that did not get to its end is said to be *broken off*. Each run is a whole
installation of real processes: Postgres, Redis, gateways, workers, beats, and agents that run
commands. Each job leaves a note of every time it began. Afterwards the rows, these notes and the
machine's own process table are compared. A seed decides which fault comes when; `KICI_FAULT_SEED`
chooses another.

The columns are broken [invariants](architecture.md#invariants):

- *over a cap* (I1): admissions past one.
- *doubled* (I2): jobs that began more than once.
- *leaked* (I3): rows or processes left behind.
- *lost* (I4, I5): jobs that never ended.
- *wronged* (I4, I8): jobs whose end is not the one they had, agents killed on purpose apart.
- *wrongly killed* (I6, I9): agents condemned for their absence though nothing had killed them.
"""
KINDS: Final = ("over_cap", "doubled", "leaked", "lost", "wronged", "killed")
_COLUMNS: Final = "over a cap | doubled | leaked | lost | wronged | wrongly killed"
_RULE: Final = " ---: |" * len(KINDS)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run did and found."""

    name: str
    jobs: int
    findings: Findings
    injected: Mapping[str, int] = field(default_factory=dict)
    seed: int | None = None
    """What decided the order of its faults, where that is left to chance."""
    broken_off: bool = False
    """Whether its test failed: what it counted may be less than there was."""
    on: date = field(default_factory=lambda: datetime.now(UTC).date())


_RECORD: Final = TypeAdapter(dict[str, Run])
_runs: dict[str, Run] = {}


def note(run: Run) -> None:
    """Keep what a run found; its last word counts."""
    _runs[run.name] = run


def note_check(jobs: int, findings: Findings) -> None:
    """Keep what the running test found; faults that were noted for it stay."""
    note(replace(_running(), jobs=jobs, findings=findings))


def note_injected(injected: Mapping[str, int], seed: int | None = None) -> None:
    """Keep which faults the running test injected."""
    note(replace(_running(), injected=injected, seed=seed))


def note_broken_off(node_id: str) -> None:
    """Keep that a test failed, if it noted anything."""
    name = node_id.rpartition("::")[2]
    if name in _runs:
        note(replace(_runs[name], broken_off=True))


def _running() -> Run:
    """What is noted of the running test so far."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" (")[0]
    return _runs.get(name, Run(name, 0, Findings()))


def runs() -> list[Run]:
    """Everything noted in this session."""
    return list(_runs.values())


def page(found: Iterable[Run]) -> str:
    """The report."""
    runs_ = list(found)
    faults: Counter[str] = sum((Counter(each.injected) for each in runs_), Counter())
    everything = Findings.merged(each.findings for each in runs_)
    total = Run("**all**", sum(each.jobs for each in runs_), everything, faults)
    lines = [
        HEAD,
        f"| run | on | seed | faults | jobs | {_COLUMNS} |",
        f"| --- | --- | ---: | ---: | ---: |{_RULE}",
        *map(_row, runs_),
        _total_row(total),
        "",
        "Runs without a number of faults injected one, which they are named after.",
        "",
        "What was broken in the runs in which a fault was injected:",
        "",
        f"| fault | times | runs | {_COLUMNS} |",
        f"| --- | ---: | ---: |{_RULE}",
        *(_fault_row(name, faults[name], runs_) for name in sorted(faults)),
    ]
    return "\n".join(lines) + "\n"


def write(path: Path) -> None:
    """Write what this session found, beside what earlier ones found of other tests.

    Args:
        path: the page; its record lies beside it, with the suffix `.json`.
    """
    if not _runs:
        return
    record = path.with_suffix(".json")
    known = _RECORD.validate_json(record.read_bytes()) if record.exists() else {}
    known = dict(sorted({**known, **_runs}.items()))
    record.write_bytes(_RECORD.dump_json(known, indent=1) + b"\n")
    path.write_text(page(known.values()), encoding="utf-8")


def _row(run: Run) -> str:
    name = run.name.removeprefix("test_").replace("_", " ") + (
        " (*broken off*)" if run.broken_off else ""
    )
    seed = "" if run.seed is None else str(run.seed)
    return f"| {name} | {run.on} | {seed} | {_counts(run)}"


def _total_row(total: Run) -> str:
    return f"| {total.name} | | | {_counts(total)}"


def _counts(run: Run) -> str:
    injected = str(sum(run.injected.values())) if run.injected else ""
    return f"{injected} | {run.jobs} | {_broken(run.findings)} |"


def _fault_row(name: str, times: int, runs_: Iterable[Run]) -> str:
    its = [each for each in runs_ if each.injected.get(name)]
    found = Findings.merged(each.findings for each in its)
    return f"| {name} | {times} | {len(its)} | {_broken(found)} |"


def _broken(found: Findings) -> str:
    return " | ".join(str(len(getattr(found, kind))) for kind in KINDS)
