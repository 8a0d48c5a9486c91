"""A registration in few statements: what it is judged by, and what follows from the first.

Each statement costs every agent's life a round trip, so what is read or written at the same
moment is one.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from kici_scaler.domain.spawn import SpawnState
from kici_scaler.domain.windows import Windows
from kici_scaler.store import agents, events, gateways, outcomes, settings, tokens
from kici_scaler.store.agents import SpawnFacts
from kici_scaler.store.bulk import sql
from kici_scaler.store.events import NewEvent


@dataclass(frozen=True, slots=True)
class Met:
    """What a registration is judged by; its gateway and its spawn are locked."""

    gateway_is_alive: bool
    spawn: SpawnFacts | None
    """None when there is none, or when the gateway is dead."""
    token_labels: tuple[str, ...] | None
    """Those that the shown token binds this agent to; None when it is not valid for it."""
    scaler_has_failed: bool
    """Whether there is a streak or a backoff that a registration puts an end to."""
    windows: Windows


# The gateway is locked first, then the spawn. What else is read may be older than the wait for
# those locks: whoever takes a token back ends its spawn as well, which is seen under the lock.
_MEET = sql(f"""
    WITH gateway AS MATERIALIZED ({gateways.LOCK_ALIVE}), spawn AS MATERIALIZED (
        SELECT {agents.FACTS} FROM spawns
        WHERE agent_id = :id AND EXISTS (SELECT FROM gateway) FOR NO KEY UPDATE
    )
    SELECT spawn.*, EXISTS (SELECT FROM gateway) AS gateway_is_alive,
           ({tokens.LABELS}) AS token_labels,
           EXISTS (SELECT FROM scaler_states t WHERE t.scaler = spawn.scaler
                   AND (t.failure_streak > 0 OR t.backoff_until IS NOT NULL)) AS has_failed,
           {settings.OF_CLUSTER} AS of_cluster
    FROM (SELECT) AS always LEFT JOIN spawn ON true
""")


def meet(connection: Connection, *, gateway: str, agent_id: str, token: str | None) -> Met:
    """Lock an agent's gateway and spawn for a registration, and read what it is judged by."""
    row = connection.execute(
        _MEET,
        {
            "gateway": gateway,
            "id": agent_id,
            "hash": None if token is None else tokens.hashed(token),
        },
    ).one()
    bound = row.token_labels
    return Met(
        gateway_is_alive=row.gateway_is_alive,
        spawn=None if row.state is None else agents.facts_of(row),
        token_labels=None if bound is None else tuple(bound),
        scaler_has_failed=row.has_failed,
        windows=Windows.of(row.of_cluster or {}),
    )


_CONNECT_FIRST = sql(
    f"""
    WITH connected AS ({agents.CONNECT} RETURNING *),
    recorded AS ({outcomes.WRITE.format(spawns="connected")}),
    {events.append("connected")}
    SELECT state FROM connected
    """,
    "tail",
)


def connect_first(
    connection: Connection, *, agent_id: str, adopter: str, offer_seconds: float, event: NewEvent
) -> SpawnState:
    """As `agents.connect_spawn`, with the outcome and the event of a first registration."""
    state = connection.execute(
        _CONNECT_FIRST,
        {
            "id": agent_id,
            "adopter": adopter,
            "offer": offer_seconds,
            "failed": False,
            "tail": [],
            "events": events.as_parameter([event]),
        },
    ).scalar_one()
    return SpawnState(state)
