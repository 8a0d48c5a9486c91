"""New jobs stored together with the ready agents that they get.

What is looked at is one statement, and what is stored another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from kici_scaler.store import surroundings, warm
from kici_scaler.store.bulk import as_rows, moment, plain, rows_as_json, sql
from kici_scaler.store.requests import NEW_COLUMNS, NEW_TYPED, NEW_VALUES, NewRequest
from kici_scaler.store.surroundings import Surroundings
from kici_scaler.store.warm import Bound, ReadyRow


@dataclass(frozen=True, slots=True)
class LabelSetPlace:
    """A label set by its place in its scaler.

    By it agents are found at a cost that grows with what is asked for and not with the pool.
    """

    scaler: str
    index: int
    labels: tuple[str, ...]


NOWHERE = LabelSetPlace("", 0, ())

_OLDEST = f"""
    SELECT s.scaler, s.label_set, s.label_set_digest, s.machine_id, a.labels, a.gate,
           s.cpu_millis, s.memory_bytes, s.limit_cpu_millis, s.limit_memory_bytes,
           s.idle_at, s.agent_id
    FROM spawns s JOIN agents a ON a.spawn_id = s.agent_id
    JOIN gateways g ON g.incarnation = a.gateway
    WHERE s.warm AND s.job_id IS NULL AND s.state = 'idle' AND {warm.SEEN}
      AND s.scaler = :scaler AND s.label_set_index = :index
      AND s.label_set = CAST(:labels AS text[])
      AND NOT EXISTS (SELECT FROM machines m WHERE m.machine_id = s.machine_id
                      AND m.backend_type = s.backend_type AND m.state = 'draining')
      AND NOT EXISTS (SELECT FROM scale_requests
                      WHERE state = 'waiting' AND routed_scaler IS NULL
                        AND enqueued_at < (SELECT clock_timestamp() - interval '0.1 s'))
      AND NOT EXISTS (SELECT FROM scale_requests
                      WHERE state = 'waiting' AND routed_scaler = :scaler)
    ORDER BY s.idle_at, s.agent_id LIMIT :most
"""
_LOOK = f"SELECT looked.*, {rows_as_json(_OLDEST)} AS oldest FROM ({surroundings.LOOK}) AS looked"


def look(
    connection: Connection, place: LabelSetPlace, *, most: int
) -> tuple[Surroundings, list[ReadyRow]]:
    """What decisions look at, and the agents of one label set that could be given a job now.

    The oldest come first, each for itself. None where a request waits that nobody has looked at,
    or one behind this scaler: it comes before any new one. What came just now is being decided,
    found no such agent, and would be in everybody's way as long as requests come.
    """
    values = {
        "scaler": place.scaler,
        "index": place.index,
        "labels": list(place.labels),
        "most": most,
    }
    row = connection.execute(sql(_LOOK), values).one()
    return surroundings.parsed(row), [_ready(each) for each in row.oldest]


def _ready(values: dict[str, Any]) -> ReadyRow:
    since = moment(values["idle_at"])
    assert since is not None, "it is idle"
    return warm.ready_row(values, ((since, values["agent_id"]),))


@dataclass(frozen=True, slots=True)
class Gift:
    """A job nobody knows yet, and the agent that is to have it."""

    request: NewRequest
    agent_id: str
    scaler: str
    pool: str
    """Identity of the agent's label set, for what is counted."""

    def as_row(self) -> dict[str, object]:
        """Both as one."""
        mine = {"agent_id": self.agent_id, "scaler": self.scaler, "pool": self.pool}
        return plain(self.request) | mine


_PATIENCE = "50ms"
"""For another who is storing the same job: nobody else gets at the agent meanwhile."""
_GIVE = f"""
    WITH now AS MATERIALIZED (
        SELECT clock_timestamp() AS moment, set_config('lock_timeout', '{_PATIENCE}', true)
    ), wanted AS (
        SELECT w.*, now.moment FROM now, jsonb_to_recordset(CAST(:rows AS jsonb))
          AS w({NEW_TYPED}, agent_id text, scaler text, pool text)
    ), free AS (
        SELECT w.*, a.gateway {warm.FREE}
    ), stored AS (
        INSERT INTO scale_requests
            ({NEW_COLUMNS}, state, enqueued_at, decided_at, routed_scaler)
        SELECT {NEW_VALUES}, 'assigned', moment, moment, scaler FROM free ORDER BY job_id
        ON CONFLICT DO NOTHING
        RETURNING job_id
    ), bound AS (
        {warm.TAKE} FROM free JOIN stored USING (job_id) WHERE s.agent_id = free.agent_id
        RETURNING s.agent_id, s.job_id
    ), counted AS ({warm.COUNT_HITS})
    SELECT bound.agent_id, bound.job_id, free.run_id, free.gateway
    FROM bound JOIN free USING (agent_id)
"""


def give(connection: Connection, gifts: Iterable[Gift], *, offer_seconds: float) -> Sequence[Bound]:
    """Store each job with its agent, if that still has none and is still seen.

    Each that is given counts as a hit of its pool. Of the others nothing is stored: their agent
    is worked on by somebody else at this moment, or their job is known already.

    Raises:
        Contended: somebody stores one of these jobs and is not done with it; nothing was stored.
    """
    values = {"rows": as_rows(each.as_row() for each in gifts), "offer": offer_seconds}
    return [Bound(**row._mapping) for row in connection.execute(sql(_GIVE), values)]
