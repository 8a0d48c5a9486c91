"""One call to the gateway, repeated until it is answered."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from kici_scaler.client.errors import (
    BadAnswer,
    ClientError,
    NotAllowed,
    Rejected,
    Unanswered,
    UnknownJob,
)

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
LATER = frozenset({408, 425, 429})
"""Statuses of a gateway that is alive and asks to be asked again."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time and the waiting, so that a test needs neither."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Repeater:
    """Asks until there is an answer or the caller's time is over.

    A request exists once it is answered, and its job id makes any number of askings one,
    so asking again is always right; a connection error, a 5xx and a 429 say nothing about
    whether it exists.
    """

    def __init__(self, client: httpx.Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def json(
        self,
        method: str,
        path: str,
        *,
        within: float,
        body: Any = None,
        query: Mapping[str, str | int] | None = None,
    ) -> Any:
        """The JSON of the answer.

        Args:
            within: seconds until the caller gives up.

        Raises:
            Unanswered: not answered in time.
            NotAllowed, UnknownJob, Rejected: the gateway refused.
            BadAnswer: the answer is not JSON.
        """
        give_up_at = self._clock.now() + within
        attempt = 0
        while True:
            request = self._client.build_request(method, path, json=body, params=query)
            try:
                response = self._client.send(request)
                problem = trouble(response)
            except httpx.TransportError as error:
                response, problem = None, f"{type(error).__name__}: {error}"
            if response is not None and problem is None:
                return _parsed(response)
            pause = pause_after(attempt, response)
            if self._clock.now() + pause >= give_up_at:
                raise Unanswered(
                    f"{method} {request.url} was not answered within {within:g} s"
                    f" (last: {problem})",
                    hint="check the gateway's URL and health; asking again is safe",
                )
            self._clock.sleep(pause)
            attempt += 1


def trouble(response: httpx.Response) -> str | None:
    """Why to ask again; None when the answer is final and good.

    Raises:
        ClientError: the answer is final and a refusal.
    """
    status = response.status_code
    if status >= 500 or status in LATER:
        return f"HTTP {status}"
    if status >= 400:
        raise refusal(response)
    return None


def refusal(response: httpx.Response) -> ClientError:
    """The error that a 4xx answer stands for, with what the gateway said."""
    said, hint = _said(response)
    if response.status_code in (401, 403):
        return NotAllowed(said, hint=hint or "check the API key")
    if response.status_code == 404:
        return UnknownJob(said, hint=hint)
    rejected = Rejected(said, hint=hint)
    rejected.problems = _problems(response)
    return rejected


def pause_after(attempt: int, response: httpx.Response | None) -> float:
    """Seconds to the next attempt: doubling with jitter, or what the gateway asks for."""
    asked = response.headers.get("retry-after", "") if response is not None else ""
    if asked.isdecimal():
        return min(float(asked), LONGEST_PAUSE_SECONDS * 6)
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(attempt, 16))
    return random.uniform(longest / 2, longest)


def _parsed(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as problem:
        raise BadAnswer(
            f"{response.request.url} did not answer with JSON: {response.text[:80]!r}",
            hint="is this the URL of a kici-scaler gateway?",
        ) from problem


def _said(response: httpx.Response) -> tuple[str, str]:
    """The gateway's sentence and hint, from `{error: {message, hint}}`; something in front of
    it may answer in its own way."""
    place = f"HTTP {response.status_code} from {response.request.url.path}"
    try:
        error = response.json()["error"]
        return str(error["message"])[:2000], str(error.get("hint") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{place}: {response.text[:200]}", ""


def _problems(response: httpx.Response) -> tuple[Mapping[str, object], ...]:
    try:
        found = response.json()["error"].get("problems")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()
    return tuple(each for each in found or () if isinstance(each, dict))
