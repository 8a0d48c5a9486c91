"""The null backend with somebody to tell: each start is announced to the fleet's socket.

Workers find it as they find any third party's backend, by an entry point (see `plugin`).
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

from workers.contract import BackendContext, Deadline, SpawnedCompute, SpawnOrder
from workers.null import NullBackend
from workers.null.backend import LEDGER_VARIABLE
from workers.null.ledger import Ledger

SOCKET_VARIABLE = "KICI_BENCH_FLEET"
NAME = "bench-fleet"


class FleetBackend(NullBackend):
    """Does what the null backend does; a started agent is played by the fleet."""

    def __init__(self, ledger: Ledger, fleet: str) -> None:
        super().__init__(ledger)
        self._fleet = fleet
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def spawn(self, order: SpawnOrder, deadline: Deadline) -> SpawnedCompute:
        """Write it down, then let it be played."""
        made = super().spawn(order, deadline)
        said = {
            "agentId": order.agent_id,
            "token": order.agent_token,
            "labels": list(order.labels),
            "url": order.gateway_url,
        }
        self._socket.sendto(json.dumps(said).encode(), self._fleet)
        return made


def open_backend(context: BackendContext) -> FleetBackend:
    """The backend whose agents the fleet behind the named socket plays."""
    ledger = Ledger(Path(context.ambient[LEDGER_VARIABLE]))
    return FleetBackend(ledger, context.ambient[SOCKET_VARIABLE])


def plugin(folder: Path) -> Path:
    """Make `folder` a place on the import path from which workers know this backend."""
    entry = folder / "kici_bench-0.dist-info"
    entry.mkdir(parents=True)
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: kici-bench\nVersion: 0\n")
    (entry / "entry_points.txt").write_text(
        f"[kici_scaler.backends]\n{NAME} = {__name__}:open_backend\n"
    )
    return folder
