"""Scale requests: kept from the first word of a job until its retention ends.

A row survives its job's end, so a late duplicate finds what happened, and a
cancellation that arrives first leaves a tombstone that the request then meets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.engine import Row

from kici_scaler.domain.request import RequestState, WaitCode
from kici_scaler.store.agent_views import LAST_AGENT
from kici_scaler.store.bulk import records, sql

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A validated request as it is stored; sealed parts stay closed."""

    job_id: str
    run_id: str
    digest: str
    labels: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    org: str | None = None
    role: str | None = None
    request_cpu_millis: int | None = None
    request_memory_bytes: int | None = None
    limit_cpu_millis: int | None = None
    limit_memory_bytes: int | None = None
    image: str | None = None
    priority: int = 0
    may_wait: bool = True
    max_requeues: int = 2
    sealed_payload: Json | None = None
    sealed_registry: Json | None = None


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request and its live agent, as a reader sees them; one no scaler made has no scaler."""

    job_id: str
    run_id: str
    org: str | None
    digest: str
    state: RequestState
    labels: tuple[str, ...]
    exclude: tuple[str, ...]
    image: str | None
    priority: int
    requeues: int
    routed_scaler: str | None
    wait_code: WaitCode
    wait_reason: str
    last_provisioning_error: str | None
    cancel_reason: str | None
    result: Json | None
    enqueued_at: datetime
    decided_at: datetime | None
    finished_at: datetime | None
    agent_id: str | None = None
    backend_type: str | None = None
    scaler: str | None = None
    machine_id: str | None = None
    spawn_state: str | None = None
    revision_id: int | None = None
    owner: str | None = None
    request_cpu_millis: int | None = None
    """What the job itself declares."""
    request_memory_bytes: int | None = None


_COLUMNS = """
    r.job_id, r.run_id, r.org, r.digest, r.state, r.labels, r.exclude, r.image, r.priority,
    r.requeues, r.routed_scaler, r.wait_code, r.wait_reason, r.last_provisioning_error,
    r.cancel_reason, r.result, r.enqueued_at, r.decided_at, r.finished_at,
    r.request_cpu_millis, r.request_memory_bytes,
    coalesce(s.agent_id, r.static_agent) AS agent_id, s.backend_type, s.scaler, s.machine_id,
    coalesce(s.state, CASE WHEN r.static_agent IS NULL THEN NULL WHEN r.state = 'running'
        THEN 'busy' ELSE 'idle' END) AS spawn_state, s.revision_id, s.owner
"""
_JOINED = """
    scale_requests r LEFT JOIN spawns s
      ON s.job_id = r.job_id AND s.state NOT IN ('destroying', 'quarantined')
"""

_TYPES = {
    "job_id": "text",
    "run_id": "text",
    "digest": "text",
    "labels": "text[]",
    "exclude": "text[]",
    "org": "text",
    "role": "text",
    "request_cpu_millis": "integer",
    "request_memory_bytes": "bigint",
    "limit_cpu_millis": "integer",
    "limit_memory_bytes": "bigint",
    "image": "text",
    "priority": "integer",
    "may_wait": "boolean",
    "max_requeues": "integer",
    "sealed_payload": "jsonb",
    "sealed_registry": "jsonb",
}
NEW_COLUMNS = ", ".join(_TYPES)
"""What a new request brings, for a statement that stores some."""
NEW_TYPED = ", ".join(f"{name} {its}" for name, its in _TYPES.items())
"""The same as the record that each of their JSON objects is."""
NEW_VALUES = ", ".join(
    f"nullif({name}, 'null')" if its == "jsonb" else name for name, its in _TYPES.items()
)
"""The same as values: a part that was not given is no JSON null."""

INSERT = f"""
    INSERT INTO scale_requests ({NEW_COLUMNS}, state, enqueued_at)
    SELECT {NEW_VALUES}, 'waiting', moment.now + place * interval '1 microsecond'
    FROM (SELECT clock_timestamp() AS now OFFSET 0) AS moment,
         ROWS FROM (jsonb_to_recordset(CAST(:rows AS jsonb)) AS ({NEW_TYPED}))
         WITH ORDINALITY AS n({NEW_COLUMNS}, place)
    ORDER BY job_id
    ON CONFLICT DO NOTHING
    RETURNING job_id
"""
"""Stores new requests as waiting, queued in the order given; tells which were new.

Rows are written in the order of their ids, so that batches which share jobs wait for each other
and not in a circle.
"""


def insert(connection: Connection, requests: Iterable[NewRequest]) -> frozenset[str]:
    """Store new requests; returns the job ids that were not there yet."""
    return frozenset(connection.execute(sql(INSERT), {"rows": records(requests)}).scalars())


def find(connection: Connection, job_ids: Sequence[str]) -> dict[str, RequestRow]:
    """The requests of these jobs, by job id; unknown ones are left out."""
    rows = connection.execute(
        sql(f"SELECT {_COLUMNS} FROM {_JOINED} WHERE r.job_id = ANY(:ids)", "ids"),
        {"ids": list(job_ids)},
    )
    return {row.job_id: _request(row) for row in rows}


def recent(
    connection: Connection, *, states: Sequence[str] | None = None, limit: int = 200
) -> list[RequestRow]:
    """Requests that are not over (oldest first), or those in `states` (newest end first)."""
    if states is None:
        where, order = "r.finished_at IS NULL", "r.enqueued_at, r.job_id"
    else:
        where, order = "r.state = ANY(:states)", "r.finished_at DESC NULLS LAST, r.enqueued_at"
    arrays = () if states is None else ("states",)
    last = f"CASE WHEN r.finished_at IS NOT NULL THEN {LAST_AGENT} END AS last_agent"
    shown = f"SELECT {_COLUMNS}, {last} FROM {_JOINED} WHERE {where} ORDER BY {order} LIMIT :n"
    rows = connection.execute(
        sql(shown, *arrays),
        {"states": list(states or ()), "n": limit},
    )
    return [_request(row) for row in rows]


def assign(source: str) -> str:
    """A statement that marks waiting requests as held: those of `source`, by `job_id`, each by an
    agent of its `scaler`."""
    return f"""
        UPDATE scale_requests r
        SET state = 'assigned', decided_at = clock_timestamp(), routed_scaler = {source}.scaler,
            wait_code = 'undecided', wait_reason = ''
        FROM {source} WHERE r.job_id = {source}.job_id AND r.state = 'waiting'
    """


@dataclass(frozen=True, slots=True)
class Standing:
    """Why a request still waits, and behind which scaler ('' = behind none)."""

    job_id: str
    code: WaitCode
    reason: str
    scaler: str = ""
    over: bool = field(default=False)
    """The request does not want to wait, so this ends it."""


def record_reasons(connection: Connection, standings: Iterable[Standing]) -> None:
    """Write why requests wait; those that may not wait end as refused."""
    connection.execute(
        sql("""
            UPDATE scale_requests r
            SET wait_code = d.code, wait_reason = d.reason, routed_scaler = d.scaler,
                decided_at = clock_timestamp(),
                state = CASE WHEN d.over THEN 'refused' ELSE r.state END,
                finished_at = CASE WHEN d.over THEN clock_timestamp() END,
                sealed_payload = CASE WHEN d.over THEN NULL ELSE r.sealed_payload END,
                sealed_registry = CASE WHEN d.over THEN NULL ELSE r.sealed_registry END
            FROM jsonb_to_recordset(CAST(:rows AS jsonb))
              AS d(job_id text, code text, reason text, scaler text, over boolean)
            WHERE r.job_id = d.job_id AND r.state = 'waiting'
        """),
        {"rows": records(standings)},
    )


IS_ANY_WAITING = """
    (SELECT job_id FROM scale_requests WHERE state = 'waiting' ORDER BY routed_scaler LIMIT 1)
        IS NOT NULL
"""
"""Whether any request waits for an agent, as an expression; in an order, so that an index is
read even where many waited when the server last counted."""


def any_waiting(connection: Connection) -> bool:
    """Whether any request waits for an agent."""
    return bool(connection.execute(sql(f"SELECT {IS_ANY_WAITING}")).scalar_one())


def _request(row: Row[tuple[object, ...]]) -> RequestRow:
    values = dict(row._mapping)
    last_agent = values.pop("last_agent", None)
    values["agent_id"] = values["agent_id"] or last_agent
    values["state"] = RequestState(values["state"])
    values["wait_code"] = WaitCode(values["wait_code"])
    values["labels"] = tuple(values["labels"])
    values["exclude"] = tuple(values["exclude"])
    return RequestRow(**values)
