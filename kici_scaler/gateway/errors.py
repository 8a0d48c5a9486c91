"""What an HTTP caller is told when something cannot be done."""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel

from kici_scaler.errors import Conflict, InvalidInput, KiciError, NotFound, Unavailable
from kici_scaler.store.engine import Contended

RETRY_SECONDS = 2
"""What `Retry-After` says when a server behind the gateway is away."""


class HttpError(KiciError):
    """An answer other than success.

    Attributes:
        status: the HTTP status.
        code: a word for programs, stable.
        retry_after: seconds after which asking again may help; None when it never will.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Headers that go with the answer."""
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after)))
        return headers

    @property
    def body(self) -> dict[str, Any]:
        """The answer's JSON."""
        told = ErrorDetail(code=self.code, message=str(self), hint=self.hint)
        return ErrorAnswer(error=told).model_dump()


class ErrorDetail(BaseModel):
    """What happened, to what, and what to do next."""

    code: str
    message: str
    hint: str = ""


class ErrorAnswer(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


_KINDS: tuple[tuple[type[KiciError], int, str], ...] = (
    (NotFound, 404, "not-found"),
    (Conflict, 409, "conflict"),
    (InvalidInput, 400, "bad-request"),
    (Contended, 503, "contended"),
    (Unavailable, 503, "unavailable"),
)


def http_error(error: KiciError) -> HttpError:
    """The answer that an error of the house becomes."""
    if isinstance(error, HttpError):
        return error
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            retry = RETRY_SECONDS if status == 503 else None
            return HttpError(status, code, str(error), hint=error.hint, retry_after=retry)
    return HttpError(400, "refused", str(error), hint=error.hint)


def try_later(message: str) -> HttpError:
    """Something passed that passes by itself."""
    return HttpError(503, "unavailable", message, retry_after=RETRY_SECONDS)
