"""`python -m tests.guards [WORD ...]`: check every guard, or those whose name holds a word.

Exit code 0 when every guard was caught, 1 when one was not, 2 when the check could not be made.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.guards.check import Guard, Outcome, StaleGuard, check, copy_tree, read_guards, run_tests
from tests.support.source import ROOT, files_to_publish

LIST = Path(__file__).with_name("guards.toml")


def _chosen(words: list[str]) -> list[Guard]:
    return [each for each in read_guards(LIST) if not words or any(w in each.name for w in words)]


def _check_in(tree: Path, guards: list[Guard]) -> int:
    tests = sorted({test for guard in guards for test in guard.tests})
    if run_tests(tree, tests) != 0:
        print(f"with every guard in place these must pass, and do not: {' '.join(tests)}")
        return 2
    missed = 0
    start = time.monotonic()
    for guard, outcome in check(guards, tree):
        print(f"{outcome:<7} {time.monotonic() - start:5.1f} s  {guard.name}", flush=True)
        missed += outcome is not Outcome.CAUGHT
        start = time.monotonic()
    print(f"{len(guards) - missed} of {len(guards)} guards caught")
    return 1 if missed else 0


def main(words: list[str]) -> int:
    """Check the chosen guards and print a line for each."""
    guards = _chosen(words)
    if not guards:
        print(f"no guard's name holds any of: {' '.join(words)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="kici-guards-") as folder:
        tree = Path(folder)
        copy_tree(ROOT, files_to_publish(), tree)
        try:
            return _check_in(tree, guards)
        except StaleGuard as stale:
            print(stale)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
