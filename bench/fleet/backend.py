"""A backend that makes nothing: each start is noted down, and told to whoever plays agents.

What it costs is no part of any figure. The null backend of the product keeps books that outlive
any crash, by a transaction of SQLite for each call, which would be a third of what a start takes.
Workers find this one as they find any third party's backend, by an entry point (see `plugin`).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path

from bench.notes import Notes
from kici_scaler.domain.scalers import Scaler
from workers.contract import (
    BackendContext,
    ComputeRef,
    Deadline,
    ExitCause,
    Finding,
    FoundCompute,
    LifecycleKind,
    SpawnedCompute,
    SpawnOrder,
)
from workers.errors import NotDone

NOTES_VARIABLE = "KICI_BENCH_NOTES"
SOCKET_VARIABLE = "KICI_BENCH_FLEET"
NAME = "bench-fleet"


class FleetBackend:
    """Whatever was started runs, until it is destroyed; nothing is ever found.

    Args:
        notes: where starts are noted.
        fleet: the socket of who plays the agents; None where nobody does.
    """

    def __init__(self, notes: Notes, fleet: str | None) -> None:
        self._notes = notes.opened()
        self._fleet = fleet
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def prepare(self, scalers: Sequence[Scaler], deadline: Deadline) -> None:
        """Nothing has to be there."""

    def check(self, scalers: Sequence[Scaler], deadline: Deadline) -> tuple[Finding, ...]:
        """Nothing can be missing."""
        return ()

    def spawn(self, order: SpawnOrder, deadline: Deadline) -> SpawnedCompute:
        """Note it down, tell its story as a real one does, then let it be played."""
        if not order.still_wanted():
            raise NotDone(f"{order.agent_id} is no longer wanted")
        order.tell(LifecycleKind.PROVISIONING, "noting it down")
        Notes.note(self._notes, order.job_id)
        order.tell(LifecycleKind.READY, "noted down")
        order.tell(LifecycleKind.CONNECTING, f"to be played against {order.gateway_url}")
        if self._fleet is not None:
            self._let_play(order, self._fleet)
        return SpawnedCompute(order.agent_id, {"note": order.agent_id})

    def _let_play(self, order: SpawnOrder, fleet: str) -> None:
        said = {
            "agentId": order.agent_id,
            "token": order.agent_token,
            "labels": list(order.labels),
            "url": order.gateway_url,
        }
        self._socket.sendto(json.dumps(said).encode(), fleet)

    def destroy(self, agent: ComputeRef, deadline: Deadline) -> None:
        """It is gone."""

    def reclaim(self, agent: ComputeRef, deadline: Deadline) -> bool:
        """There was nothing."""
        return False

    def inventory(self, installation_id: str, deadline: Deadline) -> tuple[FoundCompute, ...]:
        """Nothing is ever found, and nobody missed: see `exit_cause`."""
        return ()

    def logs(self, agent: ComputeRef, last_lines: int, deadline: Deadline) -> tuple[str, ...]:
        """It says nothing."""
        return ()

    def exit_cause(self, agent: ComputeRef, deadline: Deadline) -> ExitCause | None:
        """It runs, as far as anybody knows."""
        return None


def open_backend(context: BackendContext) -> FleetBackend:
    """The backend that notes where the worker's environment says."""
    notes = Notes(Path(context.ambient[NOTES_VARIABLE]))
    return FleetBackend(notes, context.ambient.get(SOCKET_VARIABLE))


def plugin(folder: Path) -> Path:
    """Make `folder` a place on the import path from which workers know this backend."""
    entry = folder / "kici_bench-0.dist-info"
    entry.mkdir(parents=True)
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: kici-bench\nVersion: 0\n")
    (entry / "entry_points.txt").write_text(
        f"[kici_scaler.backends]\n{NAME} = {__name__}:open_backend\n"
    )
    return folder
