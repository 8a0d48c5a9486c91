"""Makes faults happen, one after another, by a seed."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.faults.faults import Fault
from tests.faults.stage import Stage


@dataclass
class Nemesis:
    """A thread that injects faults until it is told to stop.

    What it did is in `log`, in order; the seed decides all of it.
    """

    stage: Stage
    faults: Sequence[Fault]
    seed: int
    pauses: tuple[float, float] = (0.3, 1.5)
    log: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nemesis", daemon=True)

    def __enter__(self) -> Nemesis:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a fault did not end"
        assert not self.problems, self.problems

    @property
    def counts(self) -> Counter[str]:
        """How often each fault was injected."""
        return Counter(name for name, _ in self.log)

    def _run(self) -> None:
        while not self._over.wait(self._chance.uniform(*self.pauses)):
            fault = self._chance.choice(list(self.faults))
            try:
                done = fault.work(self.stage, self._chance, self._pause)
            except Exception as error:  # noqa: BLE001  # a broken fault fails the test
                self.problems.append(f"{fault.name}: {error!r}")
                return
            self.log.append((fault.name, done))

    def _pause(self, seconds: float) -> None:
        self._over.wait(seconds)
