"""A trace is read strictly: what is wrong is named with its line and column."""

from __future__ import annotations

import io

import pytest

from kici_scaler.domain.scalers import Amount
from kici_scaler.service.simulate import history, trace
from kici_scaler.service.simulate.trace import BadTrace


def _read(text: str) -> list[trace.Job]:
    return trace.read(io.StringIO(text), "week.csv")


def test_a_full_trace_in_any_order() -> None:
    second, first = sorted(
        _read(
            "time,labels,duration,cpus,memory,org,priority,image\n"
            '2026-05-04T08:30:00Z,"linux, GPU",90.5,1.5,2Gi,acme,7,alpine\n'
            "\n"
            "1777883399,linux,0,,,,,\n"
        ),
        key=lambda each: -each.at,
    )
    assert first.labels == {"linux"}
    assert (first.seconds, first.org) == (0.0, None)
    assert not first.resources.is_declared
    assert second.at == first.at + 1
    assert second.labels == {"linux", "gpu"}
    assert second.seconds == 90.5
    assert second.resources.requests == Amount(1500, 2**31)
    assert (second.org, second.priority, second.own_image) == ("acme", 7, True)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "week.csv:1:", "empty"),
        ("time,labels,duration\n", "week.csv:", "no job"),
        ("time,labels\n1,a", "week.csv:1:", "column `duration` is missing"),
        ("time,labels,duration,colour\n", "week.csv:1:", "column 4 (`colour`)"),
        ("time,labels,duration,time\n", "week.csv:1:", "`time` stands there twice"),
        ("time,labels,duration\n1,a,2\nsoon,a,2", "week.csv:3:", "column `time`: `soon`"),
        ("time,labels,duration\n-1,a,2", "week.csv:2:", "column `time`"),
        ("time,labels,duration\n1,a,-2", "week.csv:2:", "column `duration`"),
        ("time,labels,duration\n1,a,nan", "week.csv:2:", "column `duration`"),
        ("time,labels,duration\n1,a,", "week.csv:2:", "column `duration`"),
        ("time,labels,duration\n1,a", "week.csv:2:", "2 values under 3 columns"),
        ("time,labels,duration,cpus\n1,a,2,many", "week.csv:2:", "column `cpus`"),
        ("time,labels,duration,cpus\n1,a,2,0", "week.csv:2:", "column `cpus`"),
        ("time,labels,duration,memory\n1,a,2,7", "week.csv:2:", "column `memory`"),
        ("time,labels,duration,priority\n1,a,2,1.5", "week.csv:2:", "column `priority`"),
        ('time,labels,duration\n1,"a"b,2', "week.csv:2:", "not CSV"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, where: str, what: str) -> None:
    with pytest.raises(BadTrace) as caught:
        _read(text)
    assert str(caught.value).startswith(where)
    assert what in str(caught.value)


def test_history_is_what_ran() -> None:
    ran = {
        "jobId": "b", "createdAt": "2026-05-04T08:30:00Z", "labels": ["linux"], "org": None,
        "result": {"startedAt": 1_000, "finishedAt": 3_500}, "cpus": 0.5, "memBytes": None,
    }  # fmt: skip
    never = {**ran, "jobId": "a", "result": {"error": "no agent"}}
    earlier = {**ran, "jobId": "c", "createdAt": "2026-05-04T08:29:00Z", "cpus": None}
    found = history.jobs_of([ran, never, earlier])
    assert [(each.id, each.seconds) for each in found] == [("c", 2.5), ("b", 2.5)]
    assert found[1].resources.requests == Amount(500, None)
    assert not found[0].resources.is_declared
