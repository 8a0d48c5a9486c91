"""Calls to a gateway as operators make them: one answer, or one sentence why there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import httpx
from pydantic import BaseModel, ValidationError

from kici_scaler.client import BadAnswer, Unanswered
from kici_scaler.client.transport import Clock, Repeater, trouble

ANSWER_SECONDS = 5.0
"""A person waits; a gateway that restarts is back sooner."""
QUIET_SECONDS = 60.0
"""A followed log may say nothing for so long."""

Model = TypeVar("Model", bound=BaseModel)

Query = Mapping[str, str | int | Sequence[str]]
"""Values of a query by name; a list repeats the name."""


class OperatorClient:
    """Reads and changes what a gateway offers under `/v1`, as plain JSON.

        with OperatorClient(url, api_key) as gateway:
            gateway.get("/v1/status")["globalActiveCount"]

    Every call is repeated until answered, for `answer_within` seconds.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        answer_within: float = ANSWER_SECONDS,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._within = answer_within
        self._client = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {api_key}"},
            timeout=httpx.Timeout(5.0, read=30.0),
            transport=transport,
        )
        self._ask = Repeater(self._client, clock or Clock())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()

    def get(self, path: str, query: Query | None = None) -> Any:
        """The JSON at a path.

        Raises:
            ClientError: no answer, or a refusal with the gateway's sentence.
        """
        return self._ask.json("GET", _address(path, query), within=self._within)

    def put(self, path: str, body: Mapping[str, object]) -> Any:
        """Ask for a state that may safely be asked for twice; raises like `post`."""
        return self._ask.json("PUT", path, within=self._within, body=dict(body))

    def delete(self, path: str) -> Any:
        """Ask for something to be gone; raises like `post`."""
        return self._ask.json("DELETE", path, within=self._within)

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Ask for a change that may safely be asked for twice; its JSON answer.

        Raises:
            ClientError: no answer, or a refusal with the gateway's sentence.
        """
        return self._ask.json("POST", path, within=self._within, body=dict(body or {}))

    def lines(self, path: str, query: Query | None = None) -> Iterator[Any]:
        """The JSON objects of an answer that has one a line, as they come.

        Raises:
            ClientError: no answer, a refusal, or a connection that broke.
        """
        timeout = httpx.Timeout(5.0, read=QUIET_SECONDS)
        try:
            address = _address(path, query)
            with self._client.stream("GET", address, timeout=timeout) as response:
                if response.is_error:
                    response.read()
                if (problem := trouble(response)) is not None:
                    raise Unanswered(f"GET {response.url} was not answered ({problem})")
                yield from (_parsed(text) for text in response.iter_lines() if text.strip())
        except httpx.TransportError as error:
            raise Unanswered(
                f"GET {path} broke off ({type(error).__name__}: {error})",
                hint="check the gateway's URL and health",
            ) from error


def parsed(shape: type[Model], answer: object) -> Model:
    """An answer in its shape.

    Raises:
        BadAnswer: it has another one.
    """
    try:
        return shape.model_validate(answer)
    except ValidationError as problem:
        raise BadAnswer(
            f"the gateway's answer is no {shape.__name__}: {problem.errors()[0]['msg']}",
            hint="is the gateway of another version than this command?",
        ) from problem


def _address(path: str, query: Query | None) -> str:
    encoded = urlencode(query or {}, doseq=True)
    return f"{path}?{encoded}" if encoded else path


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise BadAnswer(f"a line that is not JSON: {text[:80]!r}") from problem
