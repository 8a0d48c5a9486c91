from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from kici_scaler.client import DispatcherClient
from kici_scaler.client.transport import Clock
from kici_scaler.sealing import SealingKeys, generate_key

KEYS = SealingKeys((generate_key(),))

Answer = httpx.Response | Exception


@dataclass
class FakeTime:
    """A clock that moves only when someone waits."""

    now: float = 1000.0
    waits: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waits.append(seconds)


@dataclass
class FakeGateway:
    """Answers from lists by path; hands out its sealing key by itself."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    seen: list[httpx.Request] = field(default_factory=list)

    def will(self, path: str, *answers: Answer) -> None:
        """What it answers at a path; the last answer is given for ever."""
        self.answers[path] = list(answers)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        path = request.url.path
        if path == "/v1/sealing-key" and path not in self.answers:
            return httpx.Response(200, json=KEYS.newest.public.as_json())
        waiting = self.answers[path]
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def bodies(self, path: str) -> list[Any]:
        """The JSON it was sent at a path."""
        return [json.loads(each.content) for each in self.seen if each.url.path == path]

    def calls(self, path: str) -> int:
        return len([each for each in self.seen if each.url.path == path])


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def scaler(gateway: FakeGateway, fake_time: FakeTime) -> Iterator[DispatcherClient]:
    now: Callable[[], float] = lambda: fake_time.now  # noqa: E731 - reads the field each time
    with DispatcherClient(
        "http://gateway",
        "the-key",
        answer_within=30.0,
        transport=httpx.MockTransport(gateway.handle),
        clock=Clock(now, fake_time.wait),
    ) as client:
        yield client
