"""`python -m bench [SUITE ...] [--json FILE] [--page FILE]`, `python -m bench compare OLD NEW`.

Suites run one after another on servers of their own; nothing is measured at the same time. No
figure passes or fails a build: absolute times belong to a machine, ratios to the code.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import admission, connected, deciding, floors, jobs, microvms, sweeping, warm_hit
from bench.plots import page
from bench.report import compared, written
from bench.results import Measured, Run, machine

SUITES: Mapping[str, Callable[[], Iterator[Measured]]] = {
    "floors": floors.figures,
    "decision": deciding.figures,
    "admission": admission.figures,
    "sweep": sweeping.figures,
    "burst": jobs.bursts,
    "steady": jobs.steady,
    "lives": jobs.lives,
    "workers": jobs.workers,
    "warm": warm_hit.figures,
    "agents": connected.figures,
    "microvms": microvms.figures,
}


def measure(suites: Sequence[str]) -> Run:
    """Run these suites; each figure is told on standard error as soon as it is there."""
    before = machine()
    figures: list[Measured] = []
    for suite in suites:
        for figure in SUITES[suite]():
            print(f"{suite}: {figure.name}", file=sys.stderr, flush=True)
            figures.append(figure)
    return Run(before, figures)


def main(arguments: Sequence[str]) -> int:
    """Measure, or compare two results."""
    if arguments[:1] == ["compare"]:
        return _compare(arguments[1:])
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[[], *SUITES], help="all when none is named")
    parser.add_argument("--json", type=Path, help="also write everything into this file")
    parser.add_argument("--page", type=Path, help="also write the report with plots, as HTML")
    chosen = parser.parse_args(arguments)
    run = measure(chosen.suites or list(SUITES))
    if chosen.json:
        chosen.json.write_text(json.dumps(run.as_json(), indent=1) + "\n")
    if chosen.page:
        chosen.page.write_text(page(run))
    print(written(run))
    return 0


def _compare(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench compare")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    chosen = parser.parse_args(arguments)
    print(compared(_read(chosen.before), _read(chosen.after)))
    return 0


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
