"""The jobs of the demo: real commands, and what is true of their end."""

from __future__ import annotations

import hashlib
import random
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Final

from kici_scaler.client import JobRequest, JobResult, Payload, RequestState

RUN_ID: Final = "demo"
PRIMES: Final = {20_000: 2_262, 30_000: 3_245, 40_000: 4_203, 50_000: 5_133, 60_000: 6_057}
"""How many primes there are below a number."""

C_SOURCE: Final = """\
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int limit = atoi(argv[argc - 1]), found = 0;
    for (int n = 2; n < limit; n++) {
        int prime = 1;
        for (int d = 2; d * d <= n; d++)
            if (n % d == 0) { prime = 0; break; }
        found += prime;
    }
    printf("%d primes below %d\\n", found, limit);
    return 0;
}
"""
PYTHON_SOURCE: Final = """\
import sys
limit = int(sys.argv[1])
found = sum(all(n % d for d in range(2, int(n ** 0.5) + 1)) for n in range(2, limit))
print(found, "primes below", limit)
"""


class Kind(StrEnum):
    """What a job does."""

    CHECKSUM = "checksum"
    """Prints the SHA-256 of a file."""
    PRIMES = "primes"
    """Compiles a C program that counts primes, and runs it; in Python where no compiler is."""
    FAILURE = "failure"
    """Says so, and exits with 3."""
    VICTIM = "victim"
    """Waits for its agent to be killed."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job has to end.

    Attributes:
        line: stands in its log.
        error: stands in what the scaler says about it.
    """

    state: RequestState
    exit_code: int | None
    line: str
    error: str = ""

    def complaint(self, result: JobResult, lines: Sequence[str]) -> str:
        """What is wrong about a result and a log; empty when they are as they should be."""
        if result.state is not self.state:
            return f"ended as {result.state}, not {self.state}"
        if result.exit_code != self.exit_code:
            return f"exit code {result.exit_code}, not {self.exit_code}"
        if self.error not in (result.error or ""):
            return f"says {result.error!r}, not {self.error!r}"
        if not any(self.line in line for line in lines):
            return f"its log lacks {self.line!r}"
        return ""


@dataclass(frozen=True, slots=True)
class DemoJob:
    """A job and how it has to end."""

    job_id: str
    kind: Kind
    payload: Payload
    ending: Ending
    labels: tuple[str, ...] = ("linux", "demo")

    def request(self) -> JobRequest:
        """What the dispatcher asks for."""
        return JobRequest(
            job_id=self.job_id, run_id=RUN_ID, labels=self.labels, payload=self.payload
        )


def make_jobs(folder: Path) -> tuple[DemoJob, ...]:
    """Twenty jobs, the kinds mixed, the victim among the first.

    Args:
        folder: takes the files whose checksums are asked for.
    """
    kinds = (
        [_checksum(folder, number) for number in range(1, 9)],
        [_primes(number, limit) for number, limit in enumerate(sorted(PRIMES), start=1)],
        [_failure(number) for number in range(1, 7)],
    )
    mixed = [job for group in zip_longest(*kinds) for job in group if job is not None]
    return (*mixed[:3], _victim(), *mixed[3:])


def _checksum(folder: Path, number: int) -> DemoJob:
    file = folder / f"input-{number}"
    file.write_bytes(random.Random(number).randbytes(200_000 * number))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return DemoJob(
        f"checksum-{number}",
        Kind.CHECKSUM,
        Payload(("sh", "-c", f"cd {shlex.quote(str(folder))} && sha256sum {file.name}")),
        Ending(RequestState.SUCCEEDED, 0, digest),
    )


def _primes(number: int, limit: int) -> DemoJob:
    if shutil.which("cc"):
        script = f"cc -x c -O1 -o primes - && ./primes {limit}"
        payload = Payload(("sh", "-c", script), stdin=C_SOURCE)
    else:
        payload = Payload((sys.executable, "-c", PYTHON_SOURCE, str(limit)))
    ending = Ending(RequestState.SUCCEEDED, 0, f"{PRIMES[limit]} primes below {limit}")
    labels = ("linux", "demo", "compute")
    return DemoJob(f"primes-{number}", Kind.PRIMES, payload, ending, labels)


def _failure(number: int) -> DemoJob:
    said = f"test {number} of {number} failed, on purpose"
    return DemoJob(
        f"failure-{number}",
        Kind.FAILURE,
        Payload(("sh", "-c", f"echo '{said}'; exit 3")),
        Ending(RequestState.FAILED, 3, said),
    )


def _victim() -> DemoJob:
    said = "this job's agent will be killed"
    return DemoJob(
        "victim",
        Kind.VICTIM,
        Payload(("sh", "-c", f"echo {said!r}; sleep 300"), timeout_seconds=300),
        Ending(RequestState.FAILED, None, said, error="its agent was ended by signal 9"),
    )
