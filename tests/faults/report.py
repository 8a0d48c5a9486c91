"""What fault runs found, as a page: faults injected, jobs, and everything that broke."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.faults.findings import Findings

HEAD: Final = """\
# Fault report

Written by `make faults`, from what its runs found; zeros are what is wanted. Each run is a whole
installation of real processes: Postgres, Redis, gateways, workers, beats, and agents that run
commands. Each job leaves a note of every time it began. Afterwards the rows, these notes and the
machine's own process table are compared.

- *lost*: jobs that never ended. *doubled*: jobs that began more than once.
- *wronged*: jobs whose end is not the one they had, agents that were killed on purpose apart.
- *leaked*: rows or processes left behind. *over a cap*: admissions past one.
- *wrongly killed*: agents condemned for their absence though nothing had killed them.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run did and found."""

    name: str
    jobs: int
    findings: Findings
    injected: Mapping[str, int] = field(default_factory=dict)


_runs: dict[str, Run] = {}


def note(run: Run) -> None:
    """Keep what a run found; its last word counts."""
    _runs[run.name] = run


def note_check(jobs: int, findings: Findings) -> None:
    """Keep what the running test found; faults that were noted for it stay."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" (")[0]
    known = _runs.get(name)
    note(Run(name, jobs, findings, known.injected if known else {}))


def note_injected(injected: Mapping[str, int]) -> None:
    """Keep which faults the running test injected."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" (")[0]
    known = _runs.get(name)
    note(Run(name, known.jobs if known else 0, known.findings if known else Findings(), injected))


def runs() -> list[Run]:
    """Everything noted in this session."""
    return list(_runs.values())


def page(found: Iterable[Run]) -> str:
    """The report."""
    runs_ = list(found)
    total = Run(
        "**all**",
        sum(each.jobs for each in runs_),
        Findings.merged(each.findings for each in runs_),
        sum((Counter(each.injected) for each in runs_), Counter()),
    )
    faults = sorted(total.injected.items())
    lines = [
        HEAD,
        "| run | faults | jobs | lost | doubled | wronged | leaked | over a cap | wrongly killed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *map(_row, [*runs_, total]),
        "",
        "Runs without a number injected one fault, the one they are named after.",
        "",
        "| fault | times |",
        "| --- | ---: |",
        *(f"| {name} | {count} |" for name, count in faults),
    ]
    return "\n".join(lines) + "\n"


def write(path: Path) -> None:
    """Write the report of this session, if there is anything to report."""
    if _runs:
        path.write_text(page(runs()), encoding="utf-8")


def _row(run: Run) -> str:
    found = run.findings
    kinds = (
        found.lost, found.doubled, found.wronged, found.leaked, found.over_cap, found.killed,
    )  # fmt: skip
    name = run.name.removeprefix("test_").replace("_", " ")
    injected = str(sum(run.injected.values())) if run.injected else ""
    return f"| {name} | {injected} | {run.jobs} | {' | '.join(str(len(kind)) for kind in kinds)} |"
