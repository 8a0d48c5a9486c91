"""The life of a spawn: its states, and the only ways from one to another.

A transition is applied as one conditional update that also carries its consequences,
so whoever wins the row owns them. The table below is what the stores obey, what the
documentation draws and what the tests walk.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SpawnState(StrEnum):
    """Where a spawn is between its reservation and its confirmed end."""

    RESERVED = "reserved"
    """Capacity is held; waits for a spawn slot on its machine."""
    SPAWNING = "spawning"
    """A backend worker holds the lease and creates the compute."""
    BOOTING = "booting"
    """The compute exists; its agent must register."""
    IDLE = "idle"
    """Connected without a job: warm, or its job is being offered."""
    BUSY = "busy"
    """Its job was accepted and committed; it is never requeued from here on."""
    DESTROYING = "destroying"
    """A backend worker confirms that the compute is gone."""
    QUARANTINED = "quarantined"
    """Could not be confirmed gone for too long: slow retries, alarm, an operator."""


class DestroyReason(StrEnum):
    """Why an agent is torn down; the vocabulary of the scale-down event."""

    IDLE = "idle"
    JOB_COMPLETE = "job-complete"
    HEARTBEAT_TIMEOUT = "heartbeat-timeout"
    SPAWN_TIMEOUT = "spawn-timeout"
    DRAIN = "drain"
    SHUTDOWN = "shutdown"


class Actor(StrEnum):
    """Who may move a spawn along an edge."""

    ADMISSION = "admission"
    BACKEND_WORKER = "backend worker"
    GATEWAY = "gateway"
    SWEEP = "sweep"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Edge:
    """One permitted transition; `target` None is the end of the row."""

    source: SpawnState
    target: SpawnState | None
    actors: tuple[Actor, ...]
    why: str


S = SpawnState
A = Actor

EDGES: tuple[Edge, ...] = (
    Edge(S.RESERVED, S.SPAWNING, (A.BACKEND_WORKER,), "a spawn slot is free and the row is taken"),
    Edge(S.RESERVED, None, (A.SWEEP, A.ADMISSION, A.OPERATOR), "no longer wanted; nothing exists"),
    Edge(S.SPAWNING, None, (A.BACKEND_WORKER,), "its machine has no room; nothing was made"),
    Edge(S.SPAWNING, S.BOOTING, (A.BACKEND_WORKER,), "the compute was created and recorded"),
    Edge(S.SPAWNING, S.IDLE, (A.GATEWAY,), "its agent registered before the creation was recorded"),
    Edge(S.BOOTING, S.IDLE, (A.GATEWAY,), "its agent registered"),
    Edge(S.IDLE, S.BUSY, (A.GATEWAY,), "its agent accepted the job"),
    *(
        Edge(state, S.DESTROYING, (A.SWEEP, A.GATEWAY, A.BACKEND_WORKER, A.OPERATOR), why)
        for state, why in (
            (S.SPAWNING, "failed, overdue or no longer wanted"),
            (S.BOOTING, "exited, overdue or no longer wanted"),
            (S.IDLE, "surplus, gone, did not accept in time or no longer wanted"),
            (S.BUSY, "its job ended, it is gone, its lifetime is over or a person asked"),
        )
    ),
    Edge(S.DESTROYING, None, (A.BACKEND_WORKER,), "the compute is confirmed gone"),
    Edge(S.DESTROYING, S.QUARANTINED, (A.SWEEP,), "not confirmed gone within the bound"),
    Edge(
        S.QUARANTINED, None, (A.BACKEND_WORKER, A.OPERATOR), "confirmed gone, or a person says so"
    ),
)

CAN_START = frozenset({S.RESERVED})
CAN_REGISTER = frozenset({S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY})
BEFORE_REGISTRATION = frozenset({S.SPAWNING, S.BOOTING})
HOLDS_JOB = frozenset({S.RESERVED, S.SPAWNING, S.BOOTING, S.IDLE, S.BUSY})
ENDING = frozenset({S.DESTROYING, S.QUARANTINED})


def may(source: SpawnState, target: SpawnState | None) -> bool:
    """Whether the table has an edge from `source` to `target`."""
    return any(edge.source is source and edge.target is target for edge in EDGES)


def sources_of(target: SpawnState | None) -> frozenset[SpawnState]:
    """The states from which `target` may be entered."""
    return frozenset(edge.source for edge in EDGES if edge.target is target)
