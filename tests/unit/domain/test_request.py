"""Why a job failed, in words."""

from __future__ import annotations

from typing import Any

import pytest

from kici_scaler.domain.request import RequestState, cause_of, told_end


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        ({"status": "failed", "exitCode": 3}, "its command exited with code 3"),
        ({"status": "failed", "signal": 9}, "its command was ended by signal 9 (SIGKILL)"),
        ({"status": "failed", "signal": 99}, "its command was ended by signal 99"),
        (
            {"status": "failed", "exitCode": 143, "error": "timed out after 5 s"},
            "timed out after 5 s",
        ),
        ({"status": "error", "error": "no such file"}, "no such file"),
        ({"status": "error"}, ""),
        ({"exitCode": "3", "signal": "x"}, ""),
        ({}, ""),
    ],
)
def test_a_failure_says_its_cause(result: dict[str, Any], cause: str) -> None:
    assert cause_of(result) == cause


def test_an_end_is_told_with_its_cause_unless_it_is_a_success() -> None:
    failed = {"exitCode": 3}
    assert told_end(RequestState.FAILED, failed) == "failed: its command exited with code 3"
    assert told_end(RequestState.FAILED, {}) == "failed"
    assert told_end(RequestState.SUCCEEDED, {"exitCode": 0}) == "succeeded"
