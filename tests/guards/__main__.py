"""`python -m tests.guards [WORD ...]`: check every guard, or those whose name holds a word.

Several are checked at a time, each worker in a copy of the tree and on servers of its own. Exit
code 0 when every guard was caught, or skipped as this machine lacks a part that its tests need; 1
when one was not, 2 when the check could not be made.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from tests.guards.check import (
    Guard,
    Outcome,
    StaleGuard,
    Verdict,
    copy_tree,
    read_guards,
    run_tests,
    without,
)
from tests.guards.servers import shared_servers
from tests.support.source import ROOT, files_of_tree

LIST = Path(__file__).with_name("guards.toml")
MOST_WORKERS = 4


@dataclass(frozen=True)
class Worker:
    """A copy of the tree, and the servers that its tests may use."""

    tree: Path
    servers: Mapping[str, str] = field(repr=False)

    def check(self, guard: Guard) -> Verdict:
        """Take the guard away; what starts servers is tested on new ones."""
        starts_servers = guard.file.startswith("kici_scaler/embedded/")
        return without(guard, self.tree, None if starts_servers else self.servers)


def _chosen(words: Sequence[str]) -> list[Guard]:
    return [each for each in read_guards(LIST) if not words or any(w in each.name for w in words)]


def _hire(stack: ExitStack, folder: Path, count: int) -> list[Worker]:
    workers = []
    for number in range(count):
        tree = folder / f"tree-{number}"
        copy_tree(ROOT, files_of_tree(), tree)
        workers.append(Worker(tree, stack.enter_context(shared_servers())))
    return workers


def _red(worker: Worker, guards: Sequence[Guard]) -> tuple[str, ...]:
    """Tests that fail although every guard is in its place."""
    tests = sorted({test for guard in guards for test in guard.tests})
    ran = run_tests(worker.tree, tests, "--numprocesses", "auto", "--dist", "loadscope")
    if ran.code not in (0, 1):
        raise StaleGuard(f"the tests of the guards could not be run:\n{ran.last_words}")
    return ran.failed


def _check_all(
    workers: Sequence[Worker], guards: Sequence[Guard], red: Sequence[str]
) -> Iterator[tuple[Guard, Verdict, float]]:
    free: SimpleQueue[Worker] = SimpleQueue()
    for each in workers:
        free.put(each)

    def check(guard: Guard) -> tuple[Guard, Verdict, float]:
        begun = time.monotonic()
        if guard.has_one_of(red):
            return guard, Verdict(Outcome.RED), 0.0
        worker = free.get()
        try:
            return guard, worker.check(guard), time.monotonic() - begun
        finally:
            free.put(worker)

    with ThreadPoolExecutor(len(workers)) as pool:
        yield from pool.map(check, guards)


def _report(checked: Iterator[tuple[Guard, Verdict, float]], total: int) -> int:
    count: Counter[Outcome] = Counter()
    print(f"{'outcome':<8} {'seconds':>7}  guard ← the test that noticed")
    for guard, verdict, seconds in checked:
        noticed = f" ← {verdict.by}" if verdict.by else ""
        print(f"{verdict.outcome:<8} {seconds:>7.1f}  {guard.name}{noticed}", flush=True)
        count[verdict.outcome] += 1
    caught, skipped = count[Outcome.CAUGHT], count[Outcome.SKIPPED]
    print(f"{caught} of {total} guards caught" + (f", {skipped} skipped" if skipped else ""))
    return 0 if caught + skipped == total else 1


def main(words: Sequence[str]) -> int:
    """Check the chosen guards and print a line for each."""
    guards = _chosen(words)
    if not guards:
        print(f"no guard's name holds any of: {' '.join(words)}")
        return 2
    count = min(os.cpu_count() or 1, MOST_WORKERS, len(guards))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kici-guards-")))
        workers = _hire(stack, folder, count)
        try:
            red = _red(workers[0], guards)
            for test in red:
                print(f"red with every guard in place: {test}")
            return _report(_check_all(workers, guards, red), len(guards))
        except StaleGuard as stale:
            print(stale)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
