"""The dispatcher's client over the broker: the same requests as Celery tasks, by name.

Celery is needed only when this is used. The scaler answers intake tasks with a result
that is kept for a short time; a lost one is asked for again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kici_scaler.client import wire
from kici_scaler.client.errors import Rejected, Unanswered
from kici_scaler.client.models import JobRequest, RequestAnswer, RequestState
from kici_scaler.client.transport import pause_after
from kici_scaler.sealing import PublicKey

if TYPE_CHECKING:
    from celery import Celery

ANSWER_SECONDS = 60.0
BATCH = 500
"""Requests in one task; more are split."""
PATIENCE_SECONDS = 10.0
"""For one asking; after it, the task or its answer is taken as lost and sent again."""
SOCKET_SECONDS = 5.0
"""Without it, a broker that hangs would hang the caller for ever."""
QUEUE = "intake"
KEY_PREFIX = "scaler:"
"""Of every key of the scaler's broker, so that it may share a Redis with others."""
REFUSALS = frozenset({"BadRequest", "InvalidInput", "NotFound", "Conflict"})
"""Names of the scaler's errors that asking again does not cure."""


class CeleryDispatcherClient:
    """Asks the scaler for agents through its broker.

    `sealing_key` is the cluster's public key, or a function that finds it (such as
    `DispatcherClient.sealing_key`).
    """

    def __init__(
        self,
        app: Celery,
        sealing_key: PublicKey | Callable[[], PublicKey],
        *,
        answer_within: float = ANSWER_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """`app` is any Celery application with the scaler's broker, result backend and key
        prefix; `connect` makes one."""
        self._app = app
        self._sealing_key = sealing_key
        self._within = answer_within
        self._patience = patience

    @classmethod
    def connect(
        cls,
        broker_url: str,
        sealing_key: PublicKey | Callable[[], PublicKey],
        *,
        answer_within: float = ANSWER_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> CeleryDispatcherClient:
        """A client of its own for a broker that also holds the results, such as
        `redis://host:6379/0`."""
        from celery import Celery

        app = Celery("kici-dispatcher", broker=broker_url, backend=broker_url, set_as_current=False)
        app.conf.update(
            task_serializer="json",
            result_serializer="json",
            accept_content=["json"],
            broker_transport_options={
                "global_keyprefix": KEY_PREFIX,
                "socket_timeout": SOCKET_SECONDS,
                "socket_connect_timeout": SOCKET_SECONDS,
            },
            result_backend_transport_options={
                "global_keyprefix": KEY_PREFIX,
                "retry_policy": {"max_retries": 1, "interval_start": 0.1, "interval_max": 0.5},
            },
            redis_socket_timeout=SOCKET_SECONDS,
            redis_socket_connect_timeout=SOCKET_SECONDS,
            task_publish_retry_policy={"max_retries": 1, "interval_start": 0, "interval_max": 1},
        )
        return cls(app, sealing_key, answer_within=answer_within, patience=patience)

    def request(self, request: JobRequest) -> RequestAnswer:
        """Ask for an agent for one job.

        Raises:
            Unanswered: the request may exist or not; ask again with the same job id.
            Rejected: the request breaks a rule.
        """
        body = wire.request_body(request, self._key())
        return wire.answer(self._ask("request_scale", {"request": body}))

    def request_many(self, requests: Sequence[JobRequest]) -> tuple[RequestAnswer, ...]:
        """Ask for agents for many jobs, one task for each 500; the answers are in the order
        of the requests. One that breaks a rule is answered `failed`.

        Raises:
            Unanswered: some may exist; ask again with the same job ids.
        """
        key = self._key()
        found: list[RequestAnswer] = []
        for start in range(0, len(requests), BATCH):
            bodies = [wire.request_body(each, key) for each in requests[start : start + BATCH]]
            answered = self._ask("request_scale_many", {"requests": bodies})
            found += wire.answers(answered, len(bodies))
        return tuple(found)

    def cancel(self, job_id: str, *, reason: str = "") -> RequestState:
        """Call a job off; returns its state after that."""
        said = {"job_id": job_id} | ({"reason": reason} if reason else {})
        return wire.state_in(self._ask("cancel_request", said))

    def _key(self) -> PublicKey:
        return self._sealing_key() if callable(self._sealing_key) else self._sealing_key

    def _ask(self, task: str, said: dict[str, Any]) -> Any:
        """Send the task and read its result, again and again until the time is over."""
        give_up_at = time.monotonic() + self._within
        attempt = 0
        while True:
            left = give_up_at - time.monotonic()
            try:
                return self._once(task, said, min(max(left, 0.0), self._patience))
            except _NotAnswered as problem:
                pause = pause_after(attempt, None)
                if time.monotonic() + pause >= give_up_at:
                    raise Unanswered(
                        f"task {task} was not answered within {self._within:g} s ({problem})",
                        hint="check that a worker serves the queue `intake`; asking again is safe",
                    ) from problem
            time.sleep(pause)
            attempt += 1

    def _once(self, task: str, said: dict[str, Any], timeout: float) -> Any:
        """One asking.

        A result that is a failure is told apart by the name of its error: the class itself
        need not be installed here.

        Raises:
            Rejected: the scaler refused.
            _NotAnswered: no result, or an error that asking again may cure.
        """
        try:
            sent = self._app.send_task(task, kwargs=said, queue=QUEUE, ignore_result=False)
            try:
                return sent.get(timeout=timeout, disable_sync_subtasks=False)
            finally:
                sent.forget()
        except Exception as problem:
            if type(problem).__name__ in REFUSALS:
                raise Rejected(str(problem)) from problem
            raise _NotAnswered(_root_of(problem)) from problem


def _root_of(problem: BaseException) -> str:
    """The first error of a chain in one line; Celery's own on top only says what to restart."""
    while (deeper := problem.__cause__ or problem.__context__) is not None:
        problem = deeper
    return " ".join(f"{type(problem).__name__}: {problem}".split())


class _NotAnswered(Exception):
    """Nothing can be concluded from what came back."""
