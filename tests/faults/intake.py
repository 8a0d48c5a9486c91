"""A dispatcher that asks for an agent at fixed times, whatever happens, and keeps every answer."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx

from kici_scaler.client import DispatcherClient, wire
from tests.faults.jobs import Job, request_of
from tests.faults.stage import Stage

LONGEST_ANSWER = 30.0
MOST_AT_ONCE = 16
"""Requests without an answer yet; a machine too slow for the pace is asked as fast as it can."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request and what became of it: its HTTP status (0: none) and the answer's body."""

    job: Job
    seconds: float
    status: int
    answer: Any

    @property
    def was_taken(self) -> bool:
        """Whether it waits or has an agent by now; a request that may wait is never turned away."""
        if self.status not in (200, 201) or not isinstance(self.answer, dict):
            return False
        return self.answer.get("state") in ("waiting", "assigned", "running", "succeeded")

    @property
    def found_a_scaler(self) -> bool:
        """Whether some scaler serves it, now or later."""
        return self.was_taken and self.answer["result"] not in ("no-backend", "failed")


@dataclass
class SteadyIntake:
    """Sends one request each `every` seconds over HTTP from a thread of its own."""

    stage: Stage
    client: DispatcherClient
    every: float = 0.01
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(2 * LONGEST_ANSWER)
        assert not self._thread.is_alive(), "requests were left without an answer"

    @property
    def slowest(self) -> float:
        """The longest that one request waited for its answer, in seconds."""
        return max(each.seconds for each in self.asked)

    def _run(self) -> None:
        asyncio.run(self._ask_until_over())

    async def _ask_until_over(self) -> None:
        stage, key = self.stage, self.client.sealing_key()
        token = stage.roles.profile.dispatcher_key_path.read_text().strip()
        async with (
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{stage.front.port}",
                headers={"authorization": f"Bearer {token}"},
                timeout=LONGEST_ANSWER,
            ) as http,
            asyncio.TaskGroup() as group,
        ):
            number, free = 0, asyncio.Semaphore(MOST_AT_ONCE)
            while not self._over.is_set():
                await free.acquire()
                job = Job(f"steady-{number}", 0.05)
                body = wire.request_body(request_of(job, stage.witness), key)
                group.create_task(self._ask(http, job, body)).add_done_callback(
                    lambda _: free.release()
                )
                number += 1
                await asyncio.sleep(self.every)

    async def _ask(self, http: httpx.AsyncClient, job: Job, body: dict[str, Any]) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            answer = await http.post("/v1/requests", json=body)
            status, said = answer.status_code, answer.json()
        except (httpx.HTTPError, ValueError) as error:
            status, said = 0, repr(error)
        self.asked.append(Asked(job, clock() - began, status, said))
