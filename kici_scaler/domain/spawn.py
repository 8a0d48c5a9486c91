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
class Stay:
    """How long a spawn may be in a state, and what follows when that is over.

    Attributes:
        waits_for: who has to do what.
        windows: the live settings that bound it, by their keys; none for a wait without a bound
            of its own.
        deadline: from when how much of them counts.
        overdue: what happens then.
    """

    waits_for: str
    windows: tuple[str, ...]
    deadline: str
    overdue: str


@dataclass(frozen=True, slots=True)
class Edge:
    """One permitted transition; `target` None is the end of the row."""

    source: SpawnState
    target: SpawnState | None
    actors: tuple[Actor, ...]
    why: str

    @property
    def stay(self) -> Stay:
        """The deadline that stands until this edge, or another from the same state, is taken."""
        return STAYS[self.source]


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
            (S.BUSY, "its job ended or is not stopped, it is gone, too old or a person asked"),
        )
    ),
    Edge(S.DESTROYING, None, (A.BACKEND_WORKER,), "the compute is confirmed gone"),
    Edge(S.DESTROYING, S.QUARANTINED, (A.SWEEP,), "not confirmed gone within the bound"),
    Edge(
        S.QUARANTINED, None, (A.BACKEND_WORKER, A.OPERATOR), "confirmed gone, or a person says so"
    ),
)

STAYS: dict[SpawnState, Stay] = {
    S.RESERVED: Stay(
        "a worker of its machine with a free spawn slot",
        ("hint_after_seconds",),
        "none as long as its slot is taken; it is looked at again and again",
        "the hint is repeated; if its machine starts nothing, it is given back uncounted",
    ),
    S.SPAWNING: Stay(
        "the worker that holds the lease creates the compute",
        ("spawn_timeout_seconds", "lease_seconds"),
        "the spawn time-out of its org or the cluster, from when it was taken first",
        "the start failed: `spawn-timeout`, one failure of its scaler; the job waits again",
    ),
    S.BOOTING: Stay(
        "its agent registers",
        ("spawn_timeout_seconds", "boot_floor_seconds"),
        "the larger of both, from when the compute was recorded; of a provision, from the first"
        " delivery that may have acted",
        "the start failed: `spawn-timeout`, one failure of its scaler; the job waits again",
    ),
    S.IDLE: Stay(
        "its agent accepts the job it is offered; one without a job waits for demand",
        ("offer_timeout_seconds",),
        "from when the job was given to it or its agent connected; none without a job",
        "the job waits again, the agent is torn down",
    ),
    S.BUSY: Stay(
        "its agent reports the result",
        (
            "maximum_lifetime_seconds",
            "cancel_grace_seconds",
            "flap_grace_seconds",
            "stranded_timeout_seconds",
        ),
        "the lifetime from when the job was accepted; once its job was called off, the time to"
        " stop it; while absent, the grace with a dead gateway and the stranded time-out with a"
        " living one",
        "the job fails with that cause, `heartbeat-timeout`, or is `cancelled`; it is never run"
        " again",
    ),
    S.DESTROYING: Stay(
        "a backend worker confirms that the compute is gone",
        ("quarantine_after_seconds", "lease_seconds"),
        "from when its end was decided, tries with pauses that double",
        "`quarantined`, with an alarm",
    ),
    S.QUARANTINED: Stay(
        "a backend worker, or a person who knows better",
        (),
        "none; it is tried for ever, in the end once an hour, and counts against every cap",
        "it stays; `agents destroy --force` or `machines forget --compute-is-gone` end it",
    ),
}
"""Every state has a bound after which something acts or somebody is alarmed."""

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
