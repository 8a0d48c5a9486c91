"""A trace of what was asked for lately: requests that ran, as the gateway tells them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kici_scaler.domain.scalers import Amount, Resources
from kici_scaler.service.simulate.trace import Job


def jobs_of(requests: Iterable[Mapping[str, Any]]) -> list[Job]:
    """Jobs in the order of their times; those that never ran are left out.

    Args:
        requests: as `GET /v1/requests` answers them.
    """
    found = [job for each in requests if (job := _job(each)) is not None]
    return sorted(found, key=lambda each: each.at)


def _job(request: Mapping[str, Any]) -> Job | None:
    result = request.get("result") or {}
    began, ended = result.get("startedAt"), result.get("finishedAt")
    if not isinstance(began, int) or not isinstance(ended, int):
        return None
    cpus, memory = request.get("cpus"), request.get("memBytes")
    declared = Amount(None if cpus is None else round(cpus * 1000), memory)
    return Job(
        id=str(request["jobId"]),
        at=datetime.fromisoformat(str(request["createdAt"])).timestamp(),
        labels=frozenset(request["labels"]),
        seconds=max(0.0, (ended - began) / 1000),
        resources=Resources(declared, declared),
        org=request.get("org"),
        priority=int(request.get("priority") or 0),
        own_image=request.get("image") is not None,
    )
