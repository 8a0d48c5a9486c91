"""Requests that wait, locked for a decision: a bounded number, a fair share of each queue.

A queue is what waits behind one scaler, or (routed nowhere yet) what nobody has looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

from kici_scaler.domain.request import WaitCode, Waiting
from kici_scaler.domain.scalers import Amount, Resources, Role
from kici_scaler.store.bulk import sql
from kici_scaler.store.requests import NewRequest

_SELECT = """
    SELECT job_id, run_id, labels, exclude, org, role, request_cpu_millis, request_memory_bytes,
           limit_cpu_millis, limit_memory_bytes, image, priority, may_wait, routed_scaler,
           wait_code, wait_reason, enqueued_at
    FROM scale_requests
"""
_LOCK = f"""
    {_SELECT}
    WHERE state = 'waiting' AND job_id = ANY(ARRAY({{which}}))
    ORDER BY priority DESC, enqueued_at, job_id
    FOR UPDATE SKIP LOCKED
"""
_QUEUE = """
    SELECT job_id, row_number() OVER (ORDER BY {order}) AS place
    FROM scale_requests WHERE state = 'waiting' AND {where} ORDER BY {order} LIMIT :per_queue
"""
_URGENT = "priority DESC, enqueued_at, job_id"
_UNDECIDED = _QUEUE.format(where="routed_scaler IS NULL", order=_URGENT)
_BEHIND = _QUEUE.format(where="routed_scaler = scaler", order=_URGENT)
_DRAWN = _QUEUE.format(where="routed_scaler = scaler", order="random()")
_IN_TURN = """
    SELECT job_id FROM unnest(CAST(:scalers AS text[])) AS scaler, LATERAL ({queue}) AS part
    ORDER BY place, random() LIMIT :most
"""
_LOCK_HEADS = sql(
    _LOCK.format(
        which=f"""
        SELECT unnest(CAST(:ids AS text[]))
        UNION (SELECT job_id FROM ({_UNDECIDED}) AS undecided)
        UNION ({_IN_TURN.format(queue=_BEHIND)})
        """
    ),
    "ids",
    "scalers",
)
_LOCK_SOME = sql(_LOCK.format(which=_IN_TURN.format(queue=_DRAWN)), "scalers")


def lock_heads(
    connection: Connection,
    *,
    job_ids: Sequence[str],
    scalers: Sequence[str],
    per_queue: int,
    most: int,
) -> list[Waiting]:
    """Lock the requests that may be decided now, most urgent first.

    These are the given jobs, `per_queue` of the undecided, and as many of the head of each
    scaler's queue; where these heads are more than `most`, as many of each as fit (of more
    queues than that, any of them). So a long queue never hides the requests of another, and
    what one decision works on is bounded however many queues there are.
    """
    rows = connection.execute(
        _LOCK_HEADS,
        {"ids": list(job_ids), "scalers": list(scalers), "per_queue": per_queue, "most": most},
    )
    return [_waiting(row) for row in rows.all()]


def lock_some(
    connection: Connection, *, scalers: Sequence[str], per_queue: int, most: int
) -> list[Waiting]:
    """Lock requests from anywhere in the queues of these scalers, most urgent first."""
    rows = connection.execute(
        _LOCK_SOME, {"scalers": list(scalers), "per_queue": per_queue, "most": most}
    )
    return [_waiting(row) for row in rows.all()]


def find(connection: Connection, job_id: str) -> Waiting | None:
    """What a job asks for, whatever its state, without a lock; None when it is not known."""
    row = connection.execute(sql(f"{_SELECT} WHERE job_id = :id"), {"id": job_id}).one_or_none()
    return None if row is None else _waiting(row)


def as_asked(row: NewRequest) -> Waiting:
    """What a request that is not stored yet asks for; it has not waited at all."""
    return Waiting(
        job_id=row.job_id,
        run_id=row.run_id,
        labels=frozenset(row.labels),
        exclude=frozenset(row.exclude),
        role=None if row.role is None else Role(row.role),
        declared=Resources(
            Amount(row.request_cpu_millis, row.request_memory_bytes),
            Amount(row.limit_cpu_millis, row.limit_memory_bytes),
        ),
        image=row.image,
        org=row.org,
        priority=row.priority,
        enqueued_at=_NOT_YET,
        may_wait=row.may_wait,
    )


def ahead(connection: Connection, request: Waiting) -> int:
    """How many requests are decided before this one in the queue that it waits in."""
    count: int = connection.execute(
        sql("""
            SELECT count(*) FROM scale_requests
            WHERE state = 'waiting' AND routed_scaler IS NOT DISTINCT FROM :scaler
              AND (priority > :priority
                   OR priority = :priority AND (enqueued_at, job_id) < (:at, CAST(:id AS text)))
        """),
        {
            "scaler": request.routed_scaler,
            "priority": request.priority,
            "at": request.enqueued_at,
            "id": request.job_id,
        },
    ).scalar_one()
    return count


_NOT_YET = datetime.max.replace(tzinfo=UTC)
_WAIT_CODES = {code.value: code for code in WaitCode}
"""Looked up by the thousand, which calling the enumeration is too slow for."""


@lru_cache(maxsize=1024)
def _declared(*sides: int | None) -> Resources:
    """Jobs come in few sizes, and making one takes as long as all else of a request."""
    request_cpu, request_memory, limit_cpu, limit_memory = sides
    return Resources(Amount(request_cpu, request_memory), Amount(limit_cpu, limit_memory))


def _waiting(row: Iterable[Any]) -> Waiting:
    """From the columns in the order that the statement above names them."""
    (
        job_id, run_id, labels, exclude, org, role, request_cpu, request_memory, limit_cpu,
        limit_memory, image, priority, may_wait, routed_scaler, wait_code, wait_reason, enqueued_at,
    ) = row  # fmt: skip
    return Waiting(
        job_id,
        run_id,
        frozenset(labels),
        frozenset(exclude),
        None if role is None else Role(role),
        _declared(request_cpu, request_memory, limit_cpu, limit_memory),
        image,
        org,
        priority,
        enqueued_at,
        may_wait,
        routed_scaler,
        _WAIT_CODES[wait_code],
        wait_reason,
    )
