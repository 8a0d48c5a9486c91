"""The dispatcher's client over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from types import TracebackType
from urllib.parse import quote

import httpx

from kici_scaler.client import wire
from kici_scaler.client.errors import BadAnswer, StillGoing, Unanswered
from kici_scaler.client.models import (
    Event,
    JobRequest,
    JobResult,
    JobView,
    LogLine,
    RequestAnswer,
    RequestState,
)
from kici_scaler.client.transport import Clock, Repeater, pause_after, trouble
from kici_scaler.sealing import PublicKey

ANSWER_SECONDS = 60.0
KEY_SECONDS = 300.0
"""How long a fetched sealing key is used; a cluster opens what its older keys sealed."""
BATCH = 500
"""Requests in one call; more are split."""
POLL_SECONDS = (0.1, 2.0)
"""Between two looks at a job that is awaited: at least, and at most."""
EVENT_WAIT_SECONDS = 20
"""How long the gateway holds a call that awaits an event; less than a read may take."""
QUIET_SECONDS = 60.0
"""A log that says nothing for this long is opened again, in case the connection is dead."""


class DispatcherClient:
    """Asks the scaler for agents, and follows the jobs.

        with DispatcherClient("http://127.0.0.1:4000", api_key) as scaler:
            scaler.request(JobRequest(job_id="build-7", run_id="run-1", labels=("linux",),
                                      payload=Payload(("make", "test"))))
            for line in scaler.log("build-7"):
                print(line.text)
            print(scaler.wait("build-7", timeout=600).succeeded)

    Everything that does not say otherwise is repeated until answered, for `answer_within`
    seconds; then `Unanswered`. Safe for use by several threads.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        answer_within: float = ANSWER_SECONDS,
        sealing_key: PublicKey | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`url` is the gateway's; with `sealing_key` none is fetched."""
        self._clock = clock or Clock()
        self._within = answer_within
        self._client = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {api_key}"},
            timeout=httpx.Timeout(10.0, read=30.0),
            transport=transport,
        )
        self._ask = Repeater(self._client, self._clock)
        self._key = sealing_key
        self._key_until = float("inf") if sealing_key is not None else 0.0

    def __enter__(self) -> DispatcherClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def sealing_key(self) -> PublicKey:
        """The key that payloads are sealed to.

        Raises:
            ClientError: there is no answer, or none that is a key.
        """
        now = self._clock.now()
        if self._key is None or now >= self._key_until:
            found = self._ask.json("GET", "/v1/sealing-key", within=self._within)
            self._key = PublicKey.from_json(found if isinstance(found, dict) else {})
            self._key_until = now + KEY_SECONDS
        return self._key

    def request(self, request: JobRequest) -> RequestAnswer:
        """Ask for an agent for one job.

        Raises:
            Unanswered: the request may exist or not; ask again with the same job id.
            Rejected: the request breaks a rule.
        """
        body = wire.request_body(request, self.sealing_key())
        return wire.answer(self._ask.json("POST", "/v1/requests", body=body, within=self._within))

    def request_many(self, requests: Sequence[JobRequest]) -> tuple[RequestAnswer, ...]:
        """Ask for agents for many jobs; the answers are in the order of the requests.

        One that breaks a rule is answered `failed` and costs the others nothing.

        Raises:
            Unanswered: some may exist; ask again with the same job ids.
        """
        key = self.sealing_key()
        found: list[RequestAnswer] = []
        for start in range(0, len(requests), BATCH):
            bodies = [wire.request_body(each, key) for each in requests[start : start + BATCH]]
            answered = self._ask.json(
                "POST", "/v1/requests/batch", body={"requests": bodies}, within=self._within
            )
            found += wire.answers(answered, len(bodies))
        return tuple(found)

    def cancel(self, job_id: str, *, reason: str = "") -> RequestState:
        """Call a job off; returns its state after that. A running job is told to stop and
        ends with its result. A job not requested yet will not be served when it is."""
        body = {"reason": reason} if reason else {}
        path = f"/v1/requests/{quote(job_id, safe='')}/cancel"
        return wire.state_in(self._ask.json("POST", path, body=body, within=self._within))

    def get(self, job_id: str) -> JobView:
        """A job's request as it stands.

        Raises:
            UnknownJob: there is none.
        """
        return wire.view(self._look(job_id, self._within))

    def wait(self, job_id: str, timeout: float) -> JobResult:
        """Wait for the end of a job, at most `timeout` seconds.

        Raises:
            StillGoing: it is not over yet.
            UnknownJob: there is no request for it.
        """
        began = self._clock.now()
        give_up_at = began + timeout
        while True:
            left = give_up_at - self._clock.now()
            found = self._look(job_id, max(left, 1.0))
            seen = wire.view(found)
            if seen.state.is_over:
                return wire.job_result(found)
            pause = _pause_after(self._clock.now() - began)
            if self._clock.now() + pause >= give_up_at:
                why = f": {seen.reason}" if seen.reason else ""
                raise StillGoing(f"job {job_id} is {seen.state} after {timeout:g} s{why}")
            self._clock.sleep(pause)

    def log(self, job_id: str) -> Iterator[LogLine]:
        """The job's output from its beginning, as it comes, until the job is over.

        A broken connection is opened again where it broke; `Unanswered` when that fails
        for `answer_within` seconds.
        """
        last_seq, failing_since, attempt = 0, self._clock.now(), 0
        while True:
            try:
                for line in self._read_log(job_id, last_seq):
                    yield line
                    last_seq, failing_since, attempt = line.seq, self._clock.now(), 0
                return
            except _Again as again:
                problem = str(again)
            except _Quiet:
                continue
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            if self._clock.now() - failing_since >= self._within:
                raise Unanswered(f"the log of job {job_id} cannot be followed: {problem}")
            self._clock.sleep(pause_after(attempt, None))
            attempt += 1

    def events(self, after: int = 0, *, follow: bool = True) -> Iterator[Event]:
        """What happened past the event with id `after`, oldest first; without `follow` it
        ends where the list ends now."""
        while True:
            query = {"after": after, "wait": EVENT_WAIT_SECONDS if follow else 0}
            page = wire.events(
                self._ask.json("GET", "/v1/events", query=query, within=self._within)
            )
            for event in page:
                yield event
                after = event.id
            if not page and not follow:
                return

    def _look(self, job_id: str, within: float) -> object:
        path = f"/v1/requests/{quote(job_id, safe='')}"
        found: object = self._ask.json("GET", path, within=within)
        return found

    def _read_log(self, job_id: str, after: int) -> Iterator[LogLine]:
        path = f"/v1/requests/{quote(job_id, safe='')}/log"
        quiet = httpx.Timeout(10.0, read=QUIET_SECONDS)
        query: dict[str, str | int] = {"after": after}
        with self._client.stream("GET", path, params=query, timeout=quiet) as response:
            if response.status_code >= 400:
                response.read()
            problem = trouble(response)
            if problem is not None:
                raise _Again(problem)
            for text in _lines_of(response):
                if text.strip():
                    yield from (line for line in _parsed_log(text) if line.seq > after)


def _pause_after(waited: float) -> float:
    """A tenth of the time waited so far, so that a short job is not noticed late and a long
    one costs few looks."""
    shortest, longest = POLL_SECONDS
    return min(longest, max(shortest, waited / 10))


def _lines_of(response: httpx.Response) -> Iterator[str]:
    try:
        yield from response.iter_lines()
    except httpx.ReadTimeout as quiet:
        raise _Quiet from quiet


class _Quiet(Exception):
    """The log said nothing for long."""


class _Again(Exception):
    """The gateway asks to be asked again."""


def _parsed_log(text: str) -> Iterator[LogLine]:
    try:
        record = json.loads(text)
    except ValueError as problem:
        raise BadAnswer(f"a log line that is not JSON: {text[:80]!r}") from problem
    return wire.log_lines(record)
