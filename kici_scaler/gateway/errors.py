"""What an HTTP caller is told when something cannot be done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from kici_scaler.errors import Conflict, InvalidInput, KiciError, NotFound, Unavailable
from kici_scaler.scalers_file import InvalidScalerFile, UnreadableScalerFile
from kici_scaler.service.reload import ReloadRejected
from kici_scaler.store.engine import Contended

RETRY_SECONDS = 2
"""What `Retry-After` says when a server behind the gateway is away."""


class HttpError(KiciError):
    """An answer other than success.

    Attributes:
        status: the HTTP status.
        code: a word for programs, stable.
        retry_after: seconds after which asking again may help; None when it never will.
        problems: what is wrong at which place, one mapping each, where that can be told apart.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str = "",
        retry_after: float | None = None,
        problems: Sequence[Mapping[str, object]] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.problems = problems

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
        problems = [dict(each) for each in self.problems] or None
        told = ErrorDetail(code=self.code, message=str(self), hint=self.hint, problems=problems)
        return ErrorAnswer(error=told).model_dump(exclude_none=True)


class ErrorDetail(BaseModel):
    """What happened, to what, and what to do next."""

    code: str
    message: str
    hint: str = ""
    problems: list[dict[str, Any]] | None = None
    """Each mistake of a configuration with its file, line and path, where they are known."""


class ErrorAnswer(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


_KINDS: tuple[tuple[type[KiciError], int, str], ...] = (
    (InvalidScalerFile, 400, "invalid-configuration"),
    (UnreadableScalerFile, 400, "unreadable-configuration"),
    (ReloadRejected, 400, "reload-rejected"),
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
            return HttpError(
                status,
                code,
                str(error),
                hint=error.hint,
                retry_after=retry,
                problems=_problems(error),
            )
    return HttpError(400, "refused", str(error), hint=error.hint)


def _problems(error: KiciError) -> Sequence[Mapping[str, object]]:
    if isinstance(error, InvalidScalerFile):
        return [each.as_document() for each in error.problems]
    if isinstance(error, ReloadRejected):
        return [{"message": each} for each in error.reasons]
    return ()


def try_later(message: str) -> HttpError:
    """Something passed that passes by itself."""
    return HttpError(503, "unavailable", message, retry_after=RETRY_SECONDS)
