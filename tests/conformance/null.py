"""The null backend under the suite."""

from __future__ import annotations

from collections.abc import Iterator

from kici_scaler.domain.scalers import LabelSet
from tests.conformance.harness import Harness
from workers.contract import ExitCause, ExitKind
from workers.null.ledger import Ledger
from workers.null.witness import Event


class NullHarness(Harness):
    """Its ledger is its witness: what it says there, the rest of the world believes."""

    backend_type = "null"
    kill_rounds = 200

    @property
    def ledger(self) -> Ledger:
        """The ledger that every worker of this harness writes."""
        return Ledger(self.folder / "null-ledger.sqlite")

    def label_set(self) -> LabelSet:
        return LabelSet(0, ("linux", "x64"))

    def starts(self, agent_id: str) -> int:
        history = self.ledger.history()
        return sum((each.agent_id, each.event) == (agent_id, Event.STARTED) for each in history)

    def living(self, agent_id: str) -> int:
        return self.ledger.live().count(agent_id)

    def end(self, agent_id: str) -> None:
        self.ledger.print(agent_id, ["last words"])
        self.ledger.end(agent_id, ExitCause(ExitKind.EXITED, 3))

    def kept(self) -> Iterator[tuple[str, bytes]]:
        for each in self.folder.glob("null-ledger.sqlite*"):
            yield str(each), each.read_bytes()

    def close(self) -> None:
        self.ledger.rules.clear()
