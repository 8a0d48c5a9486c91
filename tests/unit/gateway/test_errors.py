"""Errors of the house as HTTP answers."""

from __future__ import annotations

import pytest

from kici_scaler.errors import Conflict, InvalidInput, KiciError, NotFound, Unavailable
from kici_scaler.gateway.errors import HttpError, http_error
from kici_scaler.store.engine import CommitUnknown, Contended, DatabaseUnreachable


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInput("x"), 400),
        (NotFound("x"), 404),
        (Conflict("x"), 409),
        (Unavailable("x"), 503),
        (DatabaseUnreachable("x"), 503),
        (CommitUnknown("x"), 503),
        (Contended("x"), 503),
        (KiciError("x"), 400),
    ],
)
def test_each_kind_has_its_status(error: KiciError, status: int) -> None:
    told = http_error(error)
    assert told.status == status
    assert ("Retry-After" in told.headers) == (status == 503)


def test_the_answer_says_what_and_what_next() -> None:
    told = http_error(NotFound("no job x", hint="look again"))
    assert told.body == {
        "error": {"code": "not-found", "message": "no job x", "hint": "look again"}
    }


def test_waiting_is_told_in_whole_seconds() -> None:
    assert HttpError(429, "x", "x", retry_after=0.01).headers == {"Retry-After": "1"}
    assert HttpError(429, "x", "x", retry_after=2.1).headers == {"Retry-After": "3"}
    assert HttpError(401, "x", "x").headers == {"WWW-Authenticate": "Bearer"}
