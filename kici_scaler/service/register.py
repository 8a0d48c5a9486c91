"""An agent connects, and who it is decides what happens to it.

Crash table (`kill -9` of the gateway at ...):
- before COMMIT: nothing happened; the socket breaks and the agent comes back.
- after COMMIT, before the answer: the agent is adopted by a gateway that stops beating;
  it comes back with a higher connection number and is adopted again.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from kici_scaler.checkpoints import reached
from kici_scaler.domain.scalers import BackendType
from kici_scaler.domain.spawn import CAN_REGISTER, ENDING, SpawnState
from kici_scaler.service import rearm, static_register
from kici_scaler.service.hello import SELF_REPORTED
from kici_scaler.service.hello import Hello as Hello
from kici_scaler.service.hello import Refusal as Refusal
from kici_scaler.service.hello import Refused as Refused
from kici_scaler.service.hello import Welcome as Welcome
from kici_scaler.service.ports import Place
from kici_scaler.service.reservations import is_minted
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import (
    agents,
    arrivals,
    failovers,
    gateways,
    scaler_states,
    settings,
    teardowns,
)
from kici_scaler.store.agents import SpawnFacts
from kici_scaler.store.arrivals import Met
from kici_scaler.store.engine import transaction
from kici_scaler.store.events import EventType, NewEvent


def register(runtime: Runtime, gateway: str, hello: Hello) -> Welcome | Refused:
    """Adopt an agent for this gateway incarnation, or say why not.

    Raises:
        DatabaseUnreachable: it could not be judged; the agent should come back later.
    """
    with transaction(runtime.engine) as connection:
        answer = _judge(connection, gateway, hello)
    reached("register.committed")
    if isinstance(answer, Welcome):
        _tell_who_waits(runtime, answer)
    return answer


def _tell_who_waits(runtime: Runtime, welcome: Welcome) -> None:
    if welcome.is_newly_ready:
        runtime.hints.fill(soon=True)
    elif welcome.spawn is None and welcome.job_id is None:
        runtime.hints.admit(soon=True)


_DEAD = Refused(Refusal.FOR_NOW, "this gateway was declared dead and starts over")


def _judge(connection: Connection, gateway: str, hello: Hello) -> Welcome | Refused:
    if not is_minted(hello.agent_id):
        is_alive = gateways.is_alive(connection, gateway)
        return static_register.judge(connection, gateway, hello) if is_alive else _DEAD
    met = arrivals.meet(connection, gateway=gateway, agent_id=hello.agent_id, token=hello.token)
    spawn = met.spawn
    if not met.gateway_is_alive:
        return _DEAD
    if spawn is None:
        return _unowned(connection, hello)
    if spawn.state in ENDING:
        return Refused(Refusal.TOLD_TO_GO, "the machine of this agent is being torn down")
    if spawn.state not in CAN_REGISTER:
        return Refused(Refusal.FOR_NOW, "this agent is not expected yet")
    refused = _check(hello, met.token_labels)
    if refused is not None:
        return refused
    return _adopt(connection, gateway, hello, met, spawn)


def _unowned(connection: Connection, hello: Hello) -> Refused:
    if failovers.is_held(connection):
        return Refused(
            Refusal.FOR_NOW, "the database failed over; whether a spawn is missing is not known yet"
        )
    rearm.on_sign_of_life(connection, hello.agent_id)
    return Refused(
        Refusal.UNOWNED, f"no live spawn stands for {hello.agent_id}; it should end itself"
    )


def _check(hello: Hello, bound: tuple[str, ...] | None) -> Refused | None:
    """Token first, then the labels it is bound to."""
    if bound is None and not hello.resume_is_valid:
        return Refused(
            Refusal.BAD_TOKEN, "the token is unknown, expired, or bound to another agent"
        )
    if bound is None:
        return None
    foreign = sorted(
        label for label in set(hello.labels) - set(bound) if not label.startswith(SELF_REPORTED)
    )
    if foreign:
        return Refused(
            Refusal.BAD_LABELS, f"the token is not bound to the labels {', '.join(foreign[:5])}"
        )
    return None


def _adopt(
    connection: Connection, gateway: str, hello: Hello, met: Met, spawn: SpawnFacts
) -> Welcome | Refused:
    adopted = agents.adopt(
        connection,
        agent_id=hello.agent_id,
        spawn_id=hello.agent_id,
        labels=_labels(hello, spawn),
        gate=spawn.gate,
        facts=hello.facts,
        gateway=gateway,
        connection_number=hello.connection_number,
    )
    if not adopted:
        return Refused(Refusal.SUPERSEDED, "a newer connection of this agent is known")
    state = _connect(connection, gateway, hello.agent_id, met, spawn)
    return Welcome(
        agent_id=hello.agent_id,
        state=state,
        gate=spawn.gate,
        labels=_labels(hello, spawn),
        warm=spawn.warm,
        job_id=spawn.job_id,
        run_id=spawn.run_id,
        spawn=spawn,
    )


def _connect(
    connection: Connection, gateway: str, agent_id: str, met: Met, spawn: SpawnFacts
) -> SpawnState:
    offer_seconds = met.windows.offer_timeout_seconds
    if spawn.state not in (SpawnState.SPAWNING, SpawnState.BOOTING):
        return agents.connect_spawn(
            connection, agent_id=agent_id, adopter=gateway, offer_seconds=offer_seconds
        )
    detail = f"registered at gateway {gateway}"
    state = arrivals.connect_first(
        connection,
        agent_id=agent_id,
        adopter=gateway,
        offer_seconds=offer_seconds,
        event=NewEvent(EventType.CONNECTING, agent_id, spawn.job_id, spawn.run_id, detail),
    )
    if met.scaler_has_failed:
        scaler_states.clear_failures(connection, spawn.scaler)
    if spawn.backend_type == BackendType.EVENT:
        why = "not needed any more: its agent registered"
        teardowns.call_off_scale_ups(connection, [agent_id], why=why)
    return state


def _labels(hello: Hello, spawn: SpawnFacts) -> tuple[str, ...]:
    """The labels the spawn is entitled to, and what the agent says of its own machine."""
    own = [label for label in hello.labels if label.startswith(SELF_REPORTED)]
    return tuple(dict.fromkeys((*spawn.agent_labels, *own)))


def configured(runtime: Runtime, welcome: Welcome) -> None:
    """The agent holds all that it was told: its machine's worker may say it no more.

    A hint, as any: without it that is seen to within seconds.
    """
    spawn = welcome.spawn
    if spawn is not None and welcome.has_metadata:
        place = Place(spawn.backend_type, spawn.machine_id)
        runtime.hints.inspect(place, [welcome.agent_id])


def disconnected(runtime: Runtime, gateway: str, agent_id: str, connection_number: int) -> bool:
    """A socket closed: start the absence clock unless a newer connection took over.

    Raises:
        DatabaseUnreachable: the incarnation's next heartbeats settle it instead.
    """
    return agent_id in disconnected_many(runtime, gateway, [(agent_id, connection_number)])


def disconnected_many(
    runtime: Runtime, gateway: str, connections: Sequence[tuple[str, int]]
) -> frozenset[str]:
    """The same for several sockets (agent id, connection number) in one transaction."""
    with transaction(runtime.engine) as connection:
        windows = settings.windows(connection)
        return agents.disconnect(
            connection,
            gateway=gateway,
            connections=connections,
            settle_seconds=windows.settle_seconds,
        )


def reassert(
    runtime: Runtime, gateway: str, connections: Sequence[tuple[str, int]]
) -> frozenset[str]:
    """A new incarnation claims the sockets its predecessor left open; returns those it got."""
    with transaction(runtime.engine) as connection:
        if not gateways.is_alive(connection, gateway):
            return frozenset()
        return agents.reassert(connection, gateway, connections)
