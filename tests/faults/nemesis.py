"""Makes faults happen, one after another, by a seed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kici_scaler.embedded.child import State
from tests.faults.faults import Fault
from tests.faults.stage import Stage

MOST_PATIENCE = 60.0
"""Seconds that faults wait for the roles to be up again."""


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
            self._let_stand()
            fault = self._chance.choice(list(self.faults))
            try:
                done = fault.work(self.stage, self._chance, self._pause)
            except Exception as error:  # noqa: BLE001  # a broken fault fails the test
                self.problems.append(f"{fault.name}: {error!r}")
                return
            self.log.append((fault.name, done))

    def _let_stand(self) -> None:
        """Wait for a while until one of each role is up.

        Where a start takes longer than the pauses, as on a machine that does other things too,
        nothing would ever run, and that shows nothing.
        """
        give_up_at = time.monotonic() + MOST_PATIENCE
        while not self._stands() and time.monotonic() < give_up_at:
            if self._over.wait(0.1):
                return

    def _stands(self) -> bool:
        states = self.stage.roles.supervisor.states()
        up = {_role(name) for name, state in states.items() if state is State.READY}
        return up == {_role(name) for name in states}

    def _pause(self, seconds: float) -> None:
        self._over.wait(seconds)


def _role(name: str) -> str:
    """The role of a child: `gateway` of `gateway-1`."""
    role, dash, number = name.rpartition("-")
    return role if dash and number.isdigit() else name
