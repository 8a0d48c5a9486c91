"""What a provision's targets are owed, and when: rules over plain data.

A provision is asked for and taken away by events. Each event to one target is a delivery:
tried again until the target answered, until asking again cannot help, or until it is too
late. What matters most of a failed try is whether the target may have acted on it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from kici_scaler.domain.windows import Windows

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_UP_SECONDS = 30.0
"""Between two tries of a scale-up; somebody waits for its machine."""
LONGEST_PAUSE_DOWN_SECONDS = 300.0
"""Between two tries of a scale-down; the most that a machine outlives a mended receiver."""
LAST_MOMENT_SECONDS = 2.0
"""A try that would begin so shortly before its deadline is not made: it may come too late."""
LOOK_AGAIN_SECONDS = 60.0
"""When a teardown that waits for its deliveries is looked at again all the same."""
LEAST_LOOK_SECONDS = 0.5
LONGEST_LOOK_SECONDS = 15.0
"""Between two looks whether the agent of a torn down provision has gone."""

REFUSED_FOR_NOW = frozenset({408, 409, 423, 425, 429})
"""Refusals that pass by themselves, or that say nothing of an earlier try."""
NOTHING_DONE = frozenset({423, 425, 429})
"""Of these, the ones that say that the event was not acted on."""


class DeliveryKind(StrEnum):
    """What the target is asked for."""

    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"


class DeliveryState(StrEnum):
    """How a delivery stands; the last three are final."""

    PENDING = "pending"
    """Tried, or to be tried."""
    DONE = "done"
    """The target answered that it has it."""
    NOT_DONE = "not-done"
    """It certainly never acted: nothing is owed to it."""
    UNKNOWN = "unknown"
    """It may have acted: a scale-down is owed to it."""


class Acted(StrEnum):
    """What a try lets conclude about the target."""

    YES = "yes"
    NO = "no"
    PERHAPS = "perhaps"


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one try went."""

    acted: Acted
    why: str = ""
    """In words, when it did not simply succeed; holds nothing that the target said."""
    final: bool = False
    """Asking again with the same event cannot change it."""
    retry_after: float | None = None
    """Seconds that the target asked for."""
    status: int | None = None
    """The HTTP status of its answer."""


@dataclass(frozen=True, slots=True)
class Again:
    """Try again after a pause in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Closed:
    """No more tries."""

    state: DeliveryState


def attempt_of(status: int, retry_after: float | None = None) -> Attempt:
    """What an HTTP answer means.

    2xx: it has it. 3xx and most 4xx: it refused, and did nothing; asking again is no use.
    Everything else comes from a server that failed somewhere, perhaps after it acted.
    """
    said = f"it answered {status}"
    if 200 <= status < 300:
        return Attempt(Acted.YES, status=status)
    if 300 <= status < 400:
        why = f"{said}, a redirect, which is not followed: name the final address as the target"
        return Attempt(Acted.NO, why, final=True, status=status)
    if status in REFUSED_FOR_NOW:
        acted = Acted.NO if status in NOTHING_DONE else Acted.PERHAPS
        return Attempt(acted, said, retry_after=retry_after, status=status)
    if 400 <= status < 500:
        return Attempt(Acted.NO, f"{said}: it refuses the event", final=True, status=status)
    return Attempt(Acted.PERHAPS, said, retry_after=retry_after, status=status)


def pause_after(kind: DeliveryKind, attempts: int, chance: float) -> float:
    """Seconds before the next try: doubled with each, bounded, and spread.

    Args:
        attempts: how many there were, at least 1.
        chance: evenly spread from 0 to 1; takes up to half of the pause away.
    """
    longest = (
        LONGEST_PAUSE_UP_SECONDS if kind is DeliveryKind.SCALE_UP else LONGEST_PAUSE_DOWN_SECONDS
    )
    pause: float = min(FIRST_PAUSE_SECONDS * 2 ** min(attempts - 1, 30), longest)
    return pause * (1.0 - chance / 2)


def after_attempt(
    kind: DeliveryKind,
    attempt: Attempt,
    *,
    attempts: int,
    may_have_acted: bool,
    seconds_left: float | None,
    chance: float,
) -> Again | Closed:
    """What follows a try that is not called off.

    A scale-down is owed until it is answered, so it is never given up. A scale-up is, when
    the next try would come after its deadline.

    Args:
        attempts: tries so far, this one included.
        may_have_acted: whether the target may have acted on this try or an earlier one.
        seconds_left: until the deadline; None when no deadline counts at the moment.
    """
    if attempt.acted is Acted.YES:
        return Closed(DeliveryState.DONE)
    pause = pause_after(kind, attempts, chance)
    if attempt.retry_after is not None:
        pause = max(pause, min(attempt.retry_after, LONGEST_PAUSE_DOWN_SECONDS))
    if kind is DeliveryKind.SCALE_DOWN:
        return Again(pause)
    too_late = seconds_left is not None and pause + LAST_MOMENT_SECONDS >= seconds_left
    if attempt.final or too_late:
        return Closed(given_up_as(may_have_acted))
    return Again(pause)


def given_up_as(may_have_acted: bool) -> DeliveryState:
    """How a scale-up ends that is not tried any more."""
    return DeliveryState.UNKNOWN if may_have_acted else DeliveryState.NOT_DONE


def reached_nobody(states: Collection[DeliveryState]) -> bool:
    """Whether the scale-ups of a provision are all over, and no target ever acted."""
    return all(state is DeliveryState.NOT_DONE for state in states)


@dataclass(frozen=True, slots=True)
class Teardown:
    """How the end of a provision stands, in seconds by the database's clock."""

    unanswered: int
    """Scale-downs without an answer."""
    since_begun: float
    since_answered: float | None
    """Since the last answer to a scale-down; None while there was none."""
    connected: bool
    """A gateway sees its agent."""
    told: bool
    """Its agent was told to go after the grace."""


class Settled(StrEnum):
    """A teardown that needs no more."""

    GONE = "gone"


@dataclass(frozen=True, slots=True)
class NotYet:
    """A teardown that goes on; looked at again after so many seconds."""

    seconds: float
    tell: bool = False
    """The agent should be gone by now and is not: tell it to go, and raise an alarm."""
    repeat: bool = False
    """Send the scale-down anew to every target: they answered, and nothing came of it."""


def settle(teardown: Teardown, windows: Windows) -> Settled | NotYet:
    """Whether a provision is gone: all that may have acted answered, and no agent is there.

    The agent's connection is the witness of its machine, so it is told to go only after the
    targets had time to end it: one that leaves when told proves nothing of its machine.
    """
    answered = teardown.unanswered == 0
    if answered and not teardown.connected:
        return Settled.GONE
    if not teardown.connected:
        return NotYet(LOOK_AGAIN_SECONDS)
    since = teardown.since_begun if teardown.since_answered is None else teardown.since_answered
    tell = not teardown.told and teardown.since_begun >= windows.teardown_grace_seconds
    repeat = answered and since >= windows.reattempt_interval_seconds
    moments = [max(LEAST_LOOK_SECONDS, min(teardown.since_begun / 2, LONGEST_LOOK_SECONDS))]
    if not teardown.told and not tell:
        moments.append(windows.teardown_grace_seconds - teardown.since_begun)
    if answered and not repeat:
        moments.append(windows.reattempt_interval_seconds - since)
    return NotYet(max(LEAST_LOOK_SECONDS, min(moments)), tell=tell, repeat=repeat)
