"""A cluster with one event scaler on a real database, and the steps of its workers by hand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from kici_scaler import scalers_file
from kici_scaler.domain.delivery import Acted, Attempt, DeliveryKind
from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.service import deliver, ending, provision, settle
from kici_scaler.service.deliver import DeliveryOrder
from kici_scaler.service.ports import NoHints
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import settings
from kici_scaler.store.engine import transaction
from tests.support.rows import Rows

SCALERS = """
version: 1
globalMaxAgents: 100
scalers:
  - name: cloud
    type: event
    maxAgents: 50
    maxConcurrentSpawns: 20
    platform: {os: linux, arch: x64}
    claimTtlSeconds: 300
    agentTokenTtlSeconds: 600
    provisioningTargets: ["https://one.test/hook", "https://two.test/hook"]
    labelSets:
      - labels: [linux, cloud]
"""
ONE, TWO = "https://one.test/hook", "https://two.test/hook"
URL = "wss://gateway.test/v1/agents"
DONE = Attempt(Acted.YES, status=204)
REFUSED = Attempt(Acted.NO, "refused", final=True, status=403)
AWAY = Attempt(Acted.NO, "nobody listens")
SILENT = Attempt(Acted.PERHAPS, "no answer")
UP, DOWN = DeliveryKind.SCALE_UP, DeliveryKind.SCALE_DOWN

_numbers = itertools.count(1)


@dataclass
class Cloud:
    """Provisions of the scaler `cloud`, and everything that happens to them."""

    rows: Rows
    runtime: Runtime
    revision: int
    codes: dict[str, str] = field(default_factory=dict)
    """The claim codes that were minted, by what stands in rows instead."""

    def reserved(self, *targets: str, job: str | None = None, **more: Any) -> str:
        """A provision that admission reserved."""
        return self.rows.spawn(
            SpawnState.RESERVED,
            job=job,
            agent=f"scaler-event-{next(_numbers):012x}",
            scaler="cloud",
            backend_type="event",
            machine_id=None,
            revision_id=self.revision,
            targets=list(targets or (ONE,)),
            spawn_slots=20,
            **more,
        )

    def begin(self) -> int:
        """Mint codes and owe the scale-ups."""
        return provision.begin(self.runtime, seal=self._seal, gateway_url=URL).asked_for

    def asked(self, *targets: str, job: str | None = None) -> str:
        """A provision whose scale-ups are owed."""
        agent = self.reserved(*targets, job=job)
        assert self.begin() == 1
        return agent

    def booting(self, *targets: str, job: str | None = None) -> str:
        """A provision whose scale-ups were answered."""
        agent = self.asked(*targets, job=job)
        for order in self.take(UP):
            self.record(order, DONE)
        assert self.state(agent) == "booting"
        return agent

    def connected(self, agent: str, **more: Any) -> None:
        """Let the agent be there, seen by a gateway."""
        if not self.rows.count("gateways"):
            self.rows.gateway()
        self.rows.agent(agent, **more)
        self.rows.execute(
            "UPDATE spawns SET state = 'idle', idle_at = clock_timestamp(), due_at ="
            " clock_timestamp() + interval '1 hour' WHERE agent_id = :a", a=agent,
        )  # fmt: skip

    def take(
        self,
        kind: DeliveryKind,
        most: int = 50,
        per_target: int = 50,
        holder: Runtime | None = None,
    ) -> list[DeliveryOrder]:
        """Take what may be tried now."""
        return deliver.take(holder or self.runtime, kind, most=most, per_target=per_target)[0]

    def record(self, order: DeliveryOrder, attempt: Attempt) -> deliver.Recorded | None:
        """Apply what a try came to."""
        return deliver.record(self.runtime, order, attempt)

    def tell(self, kind: DeliveryKind, attempt: Attempt) -> list[str]:
        """Try everything that may be tried, with one result; the targets."""
        orders = self.take(kind)
        for order in orders:
            assert self.record(order, attempt) is not None
        return [order.row.target for order in orders]

    def end(
        self,
        agent: str,
        reason: DestroyReason = DestroyReason.SHUTDOWN,
        *,
        failed: bool = False,
    ) -> None:
        """End a provision, as whoever decides that does."""
        with transaction(self.runtime.engine) as connection:
            ending.end(
                connection,
                [agent],
                states=ending.ANY_LIVE,
                reason=reason,
                why="the test says so",
                windows=settings.windows(connection),
                failed=failed,
                counts_against_scaler=failed,
            )

    def settle(self) -> int:
        """Look at ending provisions, now."""
        self.rows.execute("UPDATE spawns SET retry_at = NULL WHERE destroying_at IS NOT NULL")
        return settle.settle_due(self.runtime)

    def state(self, agent: str) -> str | None:
        """A provision's state; None when it is gone."""
        found = self.rows.all("SELECT state FROM spawns WHERE agent_id = :a", a=agent)
        return str(found[0][0]) if found else None

    def deliveries(self, agent: str, kind: DeliveryKind) -> list[Mapping[str, Any]]:
        """The rows of one kind, oldest first."""
        return [
            dict(row._mapping)
            for row in self.rows.all(
                "SELECT * FROM event_deliveries WHERE agent_id = :a AND kind = :k ORDER BY id",
                a=agent,
                k=kind.value,
            )
        ]

    def states(self, agent: str, kind: DeliveryKind) -> list[str]:
        """How they stand."""
        return [str(row["state"]) for row in self.deliveries(agent, kind)]

    def retry_now(self) -> None:
        """Let every pause be over."""
        self.rows.execute("UPDATE event_deliveries SET retry_at = clock_timestamp()")

    def window(self, **seconds: float) -> None:
        """Set windows."""
        with transaction(self.runtime.engine) as connection:
            for key, value in seconds.items():
                settings.put(connection, key, value, changed_by="test")

    def watched(self) -> None:
        """The sweep has just seen gateways."""
        self.rows.execute(
            "INSERT INTO observation (watched_at, grace_until) VALUES (clock_timestamp(),"
            " clock_timestamp()) ON CONFLICT (single) DO UPDATE SET watched_at ="
            " clock_timestamp()"
        )

    def _seal(self, code: str) -> Mapping[str, object]:
        sealed = f"sealed-{len(self.codes)}"
        self.codes[sealed] = code
        return {"keyId": "k", "sealed": sealed}

    def code_in(self, order: DeliveryOrder) -> str:
        """The code that a scale-up carries."""
        assert order.row.provision is not None
        return self.codes[str(order.row.provision.sealed_code["sealed"])]


@pytest.fixture
def cloud(rows: Rows, engine: Engine, tmp_path: Path) -> Cloud:
    """An empty cluster that is being watched."""
    file = tmp_path / "scalers.yaml"
    file.write_text(SCALERS)
    revision = rows.revision(active=True, document=scalers_file.load(file).document)
    found = Cloud(rows, Runtime(engine, "worker-1", hints=NoHints()), revision)
    found.watched()
    return found
