"""Both ends read and write the same messages, and nothing else gets through."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.agent.protocol import (
    CloseCode,
    Credentials,
    FromAgent,
    FromGateway,
    JobFinished,
    JobPayload,
    JobResult,
    JobStart,
    JobStatus,
    Log,
    ProtocolViolation,
    Register,
    RegisterAck,
    UnknownMessage,
    Verdict,
    decode_from_agent,
    decode_from_gateway,
    encode,
    verdict_of,
)

AGENT_KINDS = FromAgent.__args__
GATEWAY_KINDS = FromGateway.__args__

# Slots hide defaults from hypothesis, not types; half a character cannot be sent.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
st.register_type_strategy(str, TEXT)
JSON = st.none() | st.booleans() | st.integers() | TEXT
st.register_type_strategy(object, JSON)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


@pytest.mark.parametrize("kind", AGENT_KINDS)
@given(data=st.data())
def test_what_an_agent_says_arrives_as_it_was_said(kind: type[Any], data: st.DataObject) -> None:
    message = data.draw(st.from_type(kind))
    assert decode_from_agent(encode(message)) == message


@pytest.mark.parametrize("kind", GATEWAY_KINDS)
@given(data=st.data())
def test_what_a_gateway_says_arrives_as_it_was_said(kind: type[Any], data: st.DataObject) -> None:
    message = data.draw(st.from_type(kind))
    assert decode_from_gateway(encode(message)) == message


@given(st.recursive(JSON, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)))
def test_whatever_is_sent_it_is_a_message_or_a_violation(value: Any) -> None:
    for decode in (decode_from_agent, decode_from_gateway):
        with pytest.raises(ProtocolViolation):
            decode(json.dumps(value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"type": 5}', "without a type"),
        ('{"type": "log", "jobId": "j", "seq": 1, "stream": "stdout"}', "log.lines: missing"),
        ('{"type": "job.accepted", "jobId": null}', "job.accepted.jobId: expected text"),
        ('{"type": "job.accepted", "jobId": "\\ud800"}', "half a character"),
        (
            '{"type": "log", "jobId": "j", "seq": true, "stream": "stdout", "lines": []}',
            "log.seq: expected a whole number",
        ),
        (
            '{"type": "log", "jobId": "j", "seq": 1, "stream": "other", "lines": []}',
            "log.stream: expected one of stdout, stderr, agent",
        ),
        (
            '{"type": "log", "jobId": "j", "seq": 1, "stream": "stdout", "lines": ["a", 1]}',
            "log.lines[1]: expected text",
        ),
        (
            '{"type": "job.finished", "jobId": "j", "result": {"status": "succeeded"}}',
            "job.finished.result.startedAt: missing",
        ),
    ],
)
def test_a_broken_message_is_told_by_its_place(text: str, said: str) -> None:
    with pytest.raises(ProtocolViolation, match=said.replace("[", r"\[").replace(".", r"\.")):
        decode_from_agent(text)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", '"5"', "true"], ids=lambda each: each.strip('"')
)
def test_a_time_limit_is_a_number(number: str) -> None:
    text = (
        '{"type": "job.start", "jobId": "j", "payload":'
        f' {{"command": ["x"], "timeoutSeconds": {number}}}}}'
    )
    with pytest.raises(ProtocolViolation):
        decode_from_gateway(text)


def test_fields_of_a_newer_peer_are_ignored_and_missing_ones_take_their_defaults() -> None:
    ack = decode_from_gateway(
        '{"type": "register.ack", "agentId": "a", "resumeToken": "r", "fromTheFuture": 1}'
    )
    assert ack == RegisterAck("a", "r")
    start = decode_from_gateway('{"type": "job.start", "jobId": "j", "payload": {"command": []}}')
    assert start == JobStart("j", JobPayload(()))


def test_messages_of_the_other_direction_are_unknown() -> None:
    with pytest.raises(UnknownMessage):
        decode_from_agent('{"type": "job.offer", "jobId": "j", "runId": "r"}')


def test_names_on_the_wire_are_those_of_the_document() -> None:
    result = JobResult(JobStatus.FAILED, 1, 2, exit_code=3)
    assert json.loads(encode(JobFinished("j", result))) == {
        "type": "job.finished",
        "jobId": "j",
        "result": {
            "status": "failed",
            "startedAt": 1,
            "finishedAt": 2,
            "exitCode": 3,
            "signal": None,
            "error": None,
        },
    }


def test_a_message_shows_no_secret() -> None:
    facts = {field.name: "x" for field in dataclasses.fields(Credentials)}
    shown = [
        repr(Credentials(**{**facts, "agent_token": "hidden", "labels": ()})),  # type: ignore[arg-type]  # built from names
        repr(RegisterAck("a", "hidden")),
        repr(JobStart("j", JobPayload(("hidden",), {"A": "hidden"}, "hidden"))),
    ]
    assert not [each for each in shown if "hidden" in each]


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (None, Verdict.COME_BACK),
        (1000, Verdict.COME_BACK),
        (1001, Verdict.COME_BACK),
        (1006, Verdict.COME_BACK),
        (1011, Verdict.COME_BACK),
        (1012, Verdict.COME_BACK),
        (1013, Verdict.COME_BACK),
        (CloseCode.GOING_AWAY, Verdict.COME_BACK),
        (CloseCode.SUPERSEDED, Verdict.COME_BACK),
        (CloseCode.REFUSED_FOR_NOW, Verdict.COME_BACK),
        (CloseCode.REFUSED, Verdict.REFUSED),
        (CloseCode.TOLD_TO_GO, Verdict.GO),
        (CloseCode.PROTOCOL_VIOLATION, Verdict.VIOLATION),
        (4999, Verdict.COME_BACK),
    ],
)
def test_only_three_close_codes_are_final(code: int | None, verdict: Verdict) -> None:
    assert verdict_of(code) is verdict


def test_every_message_has_a_name_of_its_own() -> None:
    names = [kind.type for kind in (*AGENT_KINDS, *GATEWAY_KINDS)]
    assert len(set(names)) == len(names) == 16
    assert {Register.type, Log.type} <= set(names)
