"""JSON bodies from requests, and typed values from JSON answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from kici_scaler.client.errors import BadAnswer, Rejected
from kici_scaler.client.models import (
    Event,
    JobRequest,
    JobResult,
    JobView,
    LogLine,
    Payload,
    RegistryCredentials,
    RequestAnswer,
    RequestResult,
    RequestState,
)
from kici_scaler.sealing import Envelope, PublicKey, seal

MAX_SEALED_CHARACTERS = 64 * 1024
"""The longest sealed text a gateway takes; base64 of about 48 KiB."""

Word = TypeVar("Word", bound=StrEnum)


def request_body(request: JobRequest, key: PublicKey) -> dict[str, Any]:
    """The JSON body of a request, payload and credentials sealed.

    Raises:
        Rejected: there is no command, or a sealed part is too large.
    """
    if not request.payload.command:
        raise Rejected(f"job {request.job_id} has no command to run")
    body: dict[str, Any] = {
        "jobId": request.job_id,
        "runId": request.run_id,
        "labels": list(request.labels),
        "excludeLabels": list(request.exclude_labels),
        "resources": None if request.resources is None else dict(request.resources),
        "org": request.org,
        "role": request.role,
        "priority": request.priority,
        "container": None if request.image is None else {"image": request.image},
        "payload": _sealed(payload_json(request.payload), key, f"payload of {request.job_id}"),
        "registryCredentials": _sealed_credentials(request, key),
        "wait": request.wait,
        "maxRequeues": request.max_requeues,
    }
    return {name: value for name, value in body.items() if value is not None}


def payload_json(payload: Payload) -> dict[str, Any]:
    """What the agent is told to run, in the form of `job.start`."""
    return {
        "command": list(payload.command),
        "env": dict(payload.env),
        "stdin": payload.stdin,
        "timeoutSeconds": payload.timeout_seconds,
    }


def _sealed_credentials(request: JobRequest, key: PublicKey) -> dict[str, str] | None:
    credentials: RegistryCredentials | None = request.registry_credentials
    if credentials is None:
        return None
    return _sealed(asdict(credentials), key, f"registry credentials of {request.job_id}")


def _sealed(value: Mapping[str, Any], key: PublicKey, what: str) -> dict[str, str]:
    try:
        plain = json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as problem:
        raise Rejected(f"the {what} is no JSON: {problem}") from problem
    envelope: Envelope = seal(key, plain)
    if len(envelope.sealed) > MAX_SEALED_CHARACTERS:
        raise Rejected(
            f"the {what} is too large: {len(plain)} bytes, at most about 48 KiB go in",
            hint="pass large inputs by reference, and fetch them in the job's command",
        )
    return envelope.as_json()


def answer(value: object) -> RequestAnswer:
    """The answer to one request.

    Raises:
        Rejected: the request broke a rule.
        BadAnswer: it is none.
    """
    found = _object(value)
    if "error" in found:
        raise Rejected(_complaint(found["error"]))
    return RequestAnswer(
        job_id=_text(found, "jobId"),
        result=_word(RequestResult, found.get("result")),
        state=_optional_state(found.get("state")),
        reason=str(found.get("reason") or ""),
        agent_id=_optional_text(found, "agentId"),
        backend_type=_optional_text(found, "backendType"),
        scaler=_optional_text(found, "scaler"),
    )


def answers(value: object, expected: int) -> tuple[RequestAnswer, ...]:
    """The answers to so many requests, from a list or `{answers: [...]}`.

    A request that broke a rule is answered `failed` with the reason.

    Raises:
        BadAnswer: another number of answers came.
    """
    listed = _list(value.get("answers") if isinstance(value, Mapping) else value)
    if len(listed) != expected:
        raise BadAnswer(f"{expected} requests got {len(listed)} answers")
    return tuple(_answer_of_many(each) for each in listed)


def _answer_of_many(value: object) -> RequestAnswer:
    try:
        return answer(value)
    except Rejected as problem:
        job_id = str(_object(value).get("jobId") or "")
        return RequestAnswer(job_id, RequestResult.FAILED, RequestState.REFUSED, str(problem))


def _complaint(error: object) -> str:
    return str(error.get("message") if isinstance(error, Mapping) else error)


def view(value: object) -> JobView:
    """A request as it stands."""
    found = _object(value)
    return JobView(
        job_id=_text(found, "jobId"),
        run_id=str(found.get("runId") or ""),
        state=_word(RequestState, found.get("state")),
        reason=str(found.get("reason") or ""),
        agent_id=_optional_text(found, "agentId"),
        scaler=_optional_text(found, "scaler"),
        last_provisioning_error=_optional_text(found, "lastProvisioningError"),
        created_at=_moment(found.get("createdAt")),
        finished_at=_moment(found.get("finishedAt")),
    )


def job_result(value: object) -> JobResult:
    """The end of a request that is over."""
    found = _object(value)
    seen = view(found)
    said = _object(found.get("result") or {})
    return JobResult(
        job_id=seen.job_id,
        state=seen.state,
        exit_code=_optional_number(said, "exitCode"),
        signal=_optional_number(said, "signal"),
        error=_optional_text(said, "error") or _why_not(seen),
        started_at=_moment(said.get("startedAt")),
        finished_at=_moment(said.get("finishedAt")) or seen.finished_at,
        agent_id=seen.agent_id,
    )


def log_lines(value: object) -> Iterator[LogLine]:
    """The lines of one record of the log."""
    found = _object(value)
    seq = _optional_number(found, "seq") or 0
    stream = str(found.get("stream") or "stdout")
    for line in _list(found.get("lines", [])):
        yield LogLine(seq, stream, str(line))


def events(value: object) -> tuple[Event, ...]:
    """A page of events."""
    return tuple(_event(each) for each in _list(_object(value).get("events")))


def state_in(value: object) -> RequestState:
    """The state that an answer names."""
    return _word(RequestState, _object(value).get("state"))


def _event(value: object) -> Event:
    found = _object(value)
    number = _optional_number(found, "id")
    if number is None:
        raise BadAnswer("an event without an id")
    return Event(
        id=number,
        type=_text(found, "type"),
        detail=str(found.get("detail") or ""),
        at=_moment(found.get("at")),
        agent_id=_optional_text(found, "agentId"),
        job_id=_optional_text(found, "jobId"),
        run_id=_optional_text(found, "runId"),
    )


def _why_not(seen: JobView) -> str | None:
    if seen.state is RequestState.SUCCEEDED:
        return None
    return seen.reason or seen.last_provisioning_error


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadAnswer(f"expected an object, got {type(value).__name__}")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise BadAnswer(f"expected a list, got {type(value).__name__}")
    return value


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str):
        raise BadAnswer(f"the answer has no {key}")
    return value


def _optional_text(found: Mapping[str, Any], key: str) -> str | None:
    value = found.get(key)
    return None if value is None else str(value)


def _optional_number(found: Mapping[str, Any], key: str) -> int | None:
    value = found.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _optional_state(value: object) -> RequestState | None:
    return None if value is None else _word(RequestState, value)


def _word(kind: type[Word], value: object) -> Word:
    try:
        return kind(str(value))
    except ValueError:
        raise BadAnswer(f"{value!r} is no {kind.__name__} this client knows") from None


def _moment(value: object) -> datetime | None:
    """A time in epoch milliseconds or ISO 8601."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value / 1000, tz=UTC)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            raise BadAnswer(f"{value!r} is no time") from None
    return None
