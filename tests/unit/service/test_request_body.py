"""What a dispatcher sends for one job, checked before anything is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kici_scaler.domain.scalers import Amount, Role
from kici_scaler.service.request_body import (
    MAX_LABEL_LENGTH,
    MAX_LABELS,
    MAX_SEALED_BYTES,
    BadRequest,
    parse_request,
)

ENVELOPE = {"keyId": "key", "sealed": "c2VhbGVk"}


def _body(**more: Any) -> dict[str, Any]:
    return {"jobId": "job", "runId": "run", "labels": ["linux"], "payload": ENVELOPE, **more}


def test_a_small_request_becomes_a_row_with_the_defaults() -> None:
    row = parse_request(_body()).to_row()
    assert (row.job_id, row.run_id, row.labels, row.exclude) == ("job", "run", ("linux",), ())
    assert (row.org, row.role, row.image, row.priority) == (None, None, None, 0)
    assert (row.may_wait, row.max_requeues) == (True, 2)
    assert (row.sealed_payload, row.sealed_registry) == (ENVELOPE, None)
    assert (row.request_cpu_millis, row.limit_memory_bytes) == (None, None)


def test_a_full_request_becomes_a_row() -> None:
    row = parse_request(
        _body(
            excludeLabels=["Slow"],
            resources={"requests": {"cpus": 1.5, "memory": "1g"}, "limits": {"cpus": 2}},
            org="acme",
            role="builder",
            priority=-1000,
            container={"image": "alpine:3"},
            registryCredentials=ENVELOPE,
            wait=False,
            maxRequeues=0,
        )
    ).to_row()
    assert (row.exclude, row.org, row.role, row.image) == (("slow",), "acme", "builder", "alpine:3")
    assert (row.request_cpu_millis, row.request_memory_bytes) == (1500, 2**30)
    assert (row.limit_cpu_millis, row.limit_memory_bytes) == (2000, None)
    assert (row.priority, row.may_wait, row.max_requeues) == (-1000, False, 0)
    assert row.sealed_registry == ENVELOPE


def test_labels_are_canonical_distinct_and_may_name_the_reserved_ones() -> None:
    body = parse_request(_body(labels=["  GPU ", "gpu", "kici:arch:arm64", "Linux"]))
    assert body.labels == ["gpu", "kici:arch:arm64", "linux"]


def test_a_job_may_ask_for_no_labels_at_all() -> None:
    assert parse_request(_body(labels=[])).to_row().labels == ()


@pytest.mark.parametrize(
    ("resources", "requests", "limits"),
    [
        (None, Amount(), Amount()),
        ({}, Amount(), Amount()),
        ({"cpus": 2}, Amount(2000), Amount(2000)),
        ({"memory": "512m"}, Amount(None, 2**29), Amount(None, 2**29)),
        ({"limits": {"cpus": 2}}, Amount(), Amount(2000)),
    ],
)
def test_resources_are_kept_as_the_job_declares_them(
    resources: object, requests: Amount, limits: Amount
) -> None:
    found = parse_request(_body(resources=resources)).resources
    assert (found.requests, found.limits) == (requests, limits)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"prority": 1}, "prority"),
    "an unknown field of the container": ({"container": {"image": "a", "tag": "b"}}, "tag"),
    "an unknown field of an envelope": ({"payload": {**ENVELOPE, "clear": "x"}}, "payload.clear"),
    "no job id": ({"jobId": ""}, "jobId"),
    "a job id that is no text": ({"jobId": 7}, "jobId"),
    "a job id that is too long": ({"jobId": "x" * 201}, "jobId"),
    "a job id with a line break": ({"jobId": "a\nb"}, "jobId"),
    "a job id with a trailing line break": ({"jobId": "a\n"}, "jobId"),
    "a job id with a NUL": ({"jobId": "a\x00"}, "jobId"),
    "a run id with a NUL": ({"runId": "a\x00"}, "runId"),
    "an org with a NUL": ({"org": "\x00"}, "org"),
    "a label with a comma": ({"labels": ["a,b"]}, "labels.0"),
    "an empty label": ({"labels": ["linux", "  "]}, "labels.1"),
    "a label that is too long": ({"labels": ["x" * (MAX_LABEL_LENGTH + 1)]}, "labels.0"),
    "a label with a NUL": ({"labels": ["a\x00b"]}, "labels.0"),
    "a label with a line break": ({"labels": ["a\nb"]}, "labels.0"),
    "a label that is no text": ({"labels": [1]}, "labels.0"),
    "labels that are no list": ({"labels": "linux"}, "labels"),
    "too many labels": ({"labels": [f"l{n}" for n in range(MAX_LABELS + 1)]}, "labels"),
    "a bad excluded label": ({"excludeLabels": ["a,b"]}, "excludeLabels.0"),
    "memory without a unit": ({"resources": {"memory": "512"}}, "resources"),
    "memory as a number": ({"resources": {"memory": 512}}, "resources"),
    "negative CPUs": ({"resources": {"cpus": -1}}, "resources"),
    "CPUs that are no number": ({"resources": {"cpus": "two"}}, "resources"),
    "CPUs without end": ({"resources": {"cpus": float("inf")}}, "resources"),
    "too many CPUs": ({"resources": {"cpus": 257}}, "resources"),
    "more than its own limit": (
        {"resources": {"requests": {"cpus": 2}, "limits": {"cpus": 1}}}, "limits.cpus",
    ),
    "mixed kinds of resources": ({"resources": {"cpus": 1, "limits": {}}}, "resources"),
    "resources that are a list": ({"resources": []}, "resources"),
    "an unknown role": ({"role": "cook"}, "role"),
    "a priority beyond bounds": ({"priority": 1001}, "priority"),
    "a priority that is no whole number": ({"priority": 1.5}, "priority"),
    "too many requeues": ({"maxRequeues": 21}, "maxRequeues"),
    "an empty image": ({"container": {"image": ""}}, "container.image"),
    "an image with a NUL": ({"container": {"image": "a\x00"}}, "container.image"),
    "no payload": ({"payload": None}, "payload"),
    "a payload that is not sealed": ({"payload": {"command": ["true"]}}, "payload"),
    "a payload that is too large": (
        {"payload": {"keyId": "k", "sealed": "x" * (MAX_SEALED_BYTES + 1)}}, "payload.sealed",
    ),
    "a payload that is no base64": (
        {"payload": {"keyId": "k", "sealed": "not base64 \x00"}}, "payload.sealed",
    ),
    "a key id with a NUL": ({"payload": {"keyId": "\x00", "sealed": "YQ=="}}, "payload.keyId"),
    "a surrogate without its pair": ({"runId": "\ud800"}, "runId"),
    "a surrogate in a label": ({"labels": ["\ud800"]}, "labels.0"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_bad_request_is_refused_with_the_place_and_stores_nothing(what: str) -> None:
    changes, place = BAD[what]
    with pytest.raises(BadRequest) as caught:
        parse_request(_body(**changes))
    assert place in str(caught.value)
    assert "was not stored" in str(caught.value)
    assert len(str(caught.value)) < 2_000


@pytest.mark.parametrize("body", [None, [], "text", 7, {}])
def test_what_is_no_request_at_all_is_refused_too(body: Any) -> None:
    with pytest.raises(BadRequest):
        parse_request(body)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(_body(jobId="", priority=9_999, labels=["a,b"]))
    assert all(place in str(caught.value) for place in ("jobId", "priority", "labels.0"))


def test_the_largest_payload_that_may_be_sent_is_stored() -> None:
    sealed = "A" * MAX_SEALED_BYTES
    body = parse_request(_body(payload={"keyId": "k", "sealed": sealed}))
    assert body.payload.sealed == sealed


def test_what_was_sealed_is_never_repeated_in_an_error() -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(_body(payload={"keyId": "k", "sealed": "S3CRET" * 20_000}, priority=9_999))
    assert "S3CRET" not in str(caught.value)


SAME: list[dict[str, Any]] = [
    {"labels": ["LINUX "]},
    {"labels": ["linux", "linux"]},
    {"payload": {"keyId": "key", "sealed": "YW5vdGhlcg=="}},
    {"priority": 5},
    {"wait": False},
    {"maxRequeues": 7},
]
OTHER: list[dict[str, Any]] = [
    {"runId": "other"},
    {"labels": ["linux", "gpu"]},
    {"excludeLabels": ["slow"]},
    {"resources": {"cpus": 1}},
    {"resources": {"limits": {"cpus": 1}}},
    {"resources": {"requests": {"cpus": 1}}},
    {"org": "acme"},
    {"role": Role.BUILDER},
    {"container": {"image": "alpine:3"}},
]


@pytest.mark.parametrize("changes", SAME, ids=str)
def test_the_same_job_asked_for_again_is_recognised(changes: dict[str, Any]) -> None:
    """Each sealing of one payload looks different, so it cannot be part of that."""
    digest = parse_request(_body()).to_row().digest
    assert parse_request(_body(**changes)).to_row().digest == digest


def test_requests_that_differ_in_what_decides_have_different_digests() -> None:
    digests = {parse_request(_body(**changes)).to_row().digest for changes in ({}, *OTHER)}
    assert len(digests) == len(OTHER) + 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
fields = st.sampled_from(
    [
        "jobId", "runId", "labels", "excludeLabels", "resources", "org", "role", "priority",
        "container", "payload", "registryCredentials", "wait", "maxRequeues", "other",
    ]
)  # fmt: skip


@given(st.dictionaries(fields, json_values, max_size=4))
def test_whatever_comes_is_either_refused_or_can_be_stored(changes: dict[str, Any]) -> None:
    try:
        row = parse_request(_body(**changes)).to_row()
    except BadRequest:
        return
    text = json.dumps([row.job_id, row.labels, row.image, row.sealed_payload, row.org])
    assert "\\u0000" not in text
    text.encode()
