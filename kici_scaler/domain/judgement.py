"""What becomes of a spawn whose time has come to be looked at.

Tearing down is irreversible, so doubt leaves things alone: absence must have lasted, and
whoever could not observe does not judge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kici_scaler.domain.spawn import DestroyReason, SpawnState
from kici_scaler.domain.windows import Windows

RETURNS_PER_SECOND: Final = 20.0
"""Agents that gateways take in again at least, all together; half of what one was seen to do on a
busy machine of two cores (`python -m bench agents`)."""


@dataclass(frozen=True, slots=True)
class Due:
    """A due spawn as it is now, by the database's clock."""

    agent_id: str
    state: SpawnState
    scaler: str
    backend_type: str
    machine_id: str | None
    job_id: str | None
    past_deadline: bool
    lease_held: bool
    attempts: int
    machine_reachable: bool
    """The machine's worker was heard of lately; always true without a machine."""
    seconds_absent: float | None
    """How long nobody has seen its agent; None while connected or before it registered."""
    adopter_dead: bool
    cancelled: bool = False
    """Its running job was called off: the deadline is that of stopping it."""


class Look(StrEnum):
    """Who is asked to look at a due spawn."""

    START = "start"
    DESTROY = "destroy"
    INSPECT = "inspect"
    GATEWAY = "gateway"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Condemn:
    """End the spawn."""

    reason: DestroyReason
    why: str
    provision_failed: bool = False
    for_absence: bool = False
    """Condemned for not having been seen; the brake may withhold it."""


class Verdict(StrEnum):
    """A judgement that needs no further words."""

    QUARANTINE = "quarantine"


Judgement = Look | Condemn | Verdict

_NOT_STOPPED = "its agent did not stop the job in time, so it was destroyed"


def judge(due: Due, windows: Windows, *, observing: bool, in_grace: bool = False) -> Judgement:
    """What to do with one due spawn.

    Args:
        observing: whether gateways and the sweep itself have watched without a gap; when
            not, nothing is condemned for what could not be seen.
        in_grace: watching has just resumed; agents still have time to return.
    """
    match due.state:
        case SpawnState.RESERVED:
            return Look.START if due.machine_reachable else Look.NOBODY
        case SpawnState.SPAWNING:
            return _judge_spawning(due, observing)
        case SpawnState.BOOTING:
            return _judge_booting(due, observing)
        case SpawnState.IDLE | SpawnState.BUSY:
            return _judge_connected(due, windows, observing, in_grace)
        case SpawnState.DESTROYING:
            if due.past_deadline and not due.lease_held:
                return Verdict.QUARANTINE
            return Look.DESTROY if due.machine_reachable else Look.NOBODY
        case SpawnState.QUARANTINED:
            return Look.DESTROY if due.machine_reachable else Look.NOBODY


def forgiving(windows: Windows, agents: int) -> Windows:
    """Windows that leave all agents of a cluster the time to come back from a dead gateway.

    They queue at the gateways that are left: the last of many is not to blame for its place.
    """
    queueing = min(windows.stranded_timeout_seconds, agents / RETURNS_PER_SECOND)
    return replace(windows, flap_grace_seconds=max(windows.flap_grace_seconds, queueing))


def brake(registered: int, absent: int, windows: Windows) -> bool:
    """Whether so many of a scaler's agents are absent at once that none may be condemned.

    Many at a time point at the observer or the network between, not at the agents.
    """
    return absent >= windows.brake_minimum and absent > windows.brake_share * registered


def _judge_spawning(due: Due, observing: bool) -> Judgement:
    if due.past_deadline and observing:
        return Condemn(
            DestroyReason.SPAWN_TIMEOUT,
            f"its start took longer than allowed (attempt {due.attempts})",
            provision_failed=True,
        )
    if due.lease_held or not due.machine_reachable:
        return Look.NOBODY
    return Look.START


def _judge_booting(due: Due, observing: bool) -> Judgement:
    if due.past_deadline and observing:
        return Condemn(
            DestroyReason.SPAWN_TIMEOUT,
            "its compute was started, but its agent never registered",
            provision_failed=True,
        )
    return Look.INSPECT if due.machine_id and due.machine_reachable else Look.NOBODY


def _judge_connected(due: Due, windows: Windows, observing: bool, in_grace: bool) -> Judgement:
    if due.seconds_absent is None:
        return _judge_present(due, observing)
    if observing and not in_grace:
        condemned = _judge_absent(due, due.seconds_absent, windows)
        if condemned is not None:
            return condemned
    return Look.INSPECT if due.machine_id and due.machine_reachable else Look.NOBODY


def _judge_absent(due: Due, seconds: float, windows: Windows) -> Condemn | None:
    if due.cancelled and due.past_deadline:
        return Condemn(DestroyReason.SHUTDOWN, _NOT_STOPPED)
    allowed = windows.flap_grace_seconds if due.adopter_dead else windows.stranded_timeout_seconds
    if seconds >= allowed:
        return Condemn(
            DestroyReason.HEARTBEAT_TIMEOUT,
            f"its agent was not seen for {int(seconds)} s"
            + (" after its gateway died" if due.adopter_dead else ""),
            for_absence=True,
        )
    if due.state is SpawnState.IDLE and due.job_id is not None and due.past_deadline:
        # Nobody accepted the job, so it may go elsewhere without waiting for the agent's return.
        return Condemn(
            DestroyReason.SHUTDOWN,
            "its agent went away and did not accept its job in time",
            for_absence=True,
        )
    return None


def _judge_present(due: Due, observing: bool) -> Judgement:
    if not due.past_deadline or not observing:
        return Look.GATEWAY
    if due.cancelled:
        return Condemn(DestroyReason.SHUTDOWN, _NOT_STOPPED)
    if due.state is SpawnState.BUSY:
        return Condemn(DestroyReason.HEARTBEAT_TIMEOUT, "its maximum lifetime is over")
    if due.job_id is None:
        return Look.NOBODY
    return Condemn(DestroyReason.SHUTDOWN, "it did not accept its job in time")
