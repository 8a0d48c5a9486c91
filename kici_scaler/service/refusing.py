"""Requests that a decision left waiting: counted, and told why."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from kici_scaler.domain.admission import Refuse
from kici_scaler.domain.request import Waiting
from kici_scaler.service import counting
from kici_scaler.store import requests as request_rows


def leave_waiting(connection: Connection, refused: Sequence[Refuse]) -> list[Refuse]:
    """Only what changed is written, so a long queue costs nothing while nothing changes.

    Returns the refusals that are news.
    """
    counting.refusals(refused)
    news = [each for each in refused if not each.request.may_wait or _differs(each, each.request)]
    standings = [
        request_rows.Standing(
            each.request.job_id,
            each.code,
            each.reason,
            each.scaler,
            over=not each.request.may_wait,
        )
        for each in news
    ]
    if standings:
        request_rows.record_reasons(connection, standings)
    return news


def _differs(refuse: Refuse, request: Waiting) -> bool:
    return (refuse.code, refuse.reason, refuse.scaler) != (
        request.wait_code,
        request.wait_reason,
        request.routed_scaler,
    )
