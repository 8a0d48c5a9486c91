"""What a supervisor's answer means, and what none means."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from workers.bare_metal.host import LocalHost, interpret
from workers.contract import Deadline
from workers.errors import BackendError, NotDone, NotOwner, OutcomeUnknown, Permanent


def test_an_answer_is_given_as_it_is() -> None:
    assert interpret("list", '{"ok": true, "agents": []}')["agents"] == []


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("not-owner", NotOwner),
        ("not-done", NotDone),
        ("unknown", OutcomeUnknown),
        ("permanent", Permanent),
        ("ended", Permanent),
    ],
)
def test_a_refusal_says_what_may_be_concluded(code: str, error: type[BackendError]) -> None:
    text = json.dumps({"ok": False, "code": code, "message": "what happened"})

    with pytest.raises(error, match="what happened"):
        interpret("start", text)


def test_an_end_is_told_with_its_detail_and_output() -> None:
    cause = {"detail": "exited with code 7", "log_tail": ["a", "b"]}
    text = json.dumps({"ok": False, "code": "ended", "message": "it ended", "cause": cause})

    with pytest.raises(Permanent, match="it ended: exited with code 7") as failure:
        interpret("start", text)

    assert failure.value.log_tail == ("a", "b")


@pytest.mark.parametrize("text", ["", "Traceback", "[]", "{}", '{"ok": false, "code": "new"}'])
def test_nonsense_leaves_the_outcome_unknown(text: str) -> None:
    with pytest.raises(OutcomeUnknown, match="`start` answered nonsense"):
        interpret("start", text)


def test_a_supervisor_that_cannot_be_run_did_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    with pytest.raises(NotDone, match="cannot be run"):
        LocalHost(tmp_path, {}).ask("list", {}, Deadline.after(5))


def test_a_supervisor_that_fails_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    with pytest.raises(OutcomeUnknown, match="`list` failed: KeyError"):
        LocalHost(tmp_path, {}).ask("list", {}, Deadline.after(5))


def test_a_supervisor_that_does_not_answer_in_time_leaves_the_outcome_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))

    with pytest.raises(OutcomeUnknown, match="did not answer in time"):
        LocalHost(tmp_path, {"PATH": "/bin"}).ask("list", {}, Deadline.after(0.3))
