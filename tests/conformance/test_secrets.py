"""An agent's token is known to the agent alone."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread

import psutil
import pytest

from tests.conformance.harness import Harness, soon
from tests.support.waiting import eventually
from workers.contract import Backend
from workers.errors import NotOwner


class Watch(Thread):
    """Looks at every process's arguments and environment, again and again."""

    def __init__(self, secret: str) -> None:
        super().__init__(daemon=True)
        self._secret = secret
        self._over = Event()
        self.seen: set[str] = set()
        self.looks = 0

    def run(self) -> None:
        """Look until told to stop."""
        while not self._over.is_set():
            self.seen.update(_holders(self._secret))
            self.looks += 1

    def end(self) -> set[str]:
        """What showed the secret."""
        self._over.set()
        self.join()
        return self.seen


def _holders(secret: str) -> Iterator[str]:
    for process in psutil.process_iter():
        try:
            if secret in " ".join(process.cmdline()):
                yield f"arguments of {process}"
            if any(secret in value for value in process.environ().values()):
                yield f"environment of {process}"
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def test_the_token_shows_in_no_process_and_no_record(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    order = harness.order(agent_id)
    watch = Watch(order.agent_token)
    watch.start()
    eventually(lambda: watch.looks > 0)

    spawned = backend.spawn(order, soon())
    eventually(lambda: harness.starts(agent_id) == 1)
    looks = watch.looks
    eventually(lambda: watch.looks > looks + 1)

    assert watch.end() == set()
    assert order.agent_token not in f"{spawned}{order}"
    secret = order.agent_token.encode()
    eventually(lambda: not [where for where, content in harness.kept() if secret in content])


def test_a_refused_spawn_leaves_no_token_behind(
    harness: Harness, backend: Backend, agent_id: str
) -> None:
    backend.destroy(harness.ref(agent_id, 9), soon())
    order = harness.order(agent_id, token=1)

    with pytest.raises(NotOwner) as refusal:
        backend.spawn(order, soon())

    assert order.agent_token not in str(refusal.value)
    secret = order.agent_token.encode()
    assert not [where for where, content in harness.kept() if secret in content]
