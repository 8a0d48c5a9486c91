"""The agent's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from kici_scaler.agent.lines import Backpressure
from kici_scaler.agent.settings import Unusable, job_environment, read_settings, split_labels

LEAST = {"KICI_ORCHESTRATOR_URL": "ws://gateway/v1/agents", "KICI_AGENT_ID": "a"}


def test_the_defaults_are_those_of_the_document() -> None:
    settings = read_settings(dict(LEAST))
    assert (settings.idle, settings.pending_dispatch) == (5.0, 60.0)
    assert settings.backpressure is Backpressure.PAUSE
    assert settings.stop_grace + settings.farewell < 5.0
    assert not settings.scaler_managed
    assert settings.labels == ()


def test_durations_are_milliseconds() -> None:
    assert read_settings({**LEAST, "KICI_SCALER_IDLE_TIMEOUT": "1500"}).idle == 1.5


def test_secrets_leave_the_environment() -> None:
    environ = {**LEAST, "KICI_AGENT_TOKEN": "token", "KICI_SCALER_CLAIM_CODE": "code"}
    settings = read_settings(environ)
    assert environ == LEAST
    assert (settings.token, settings.claim_code) == ("token", "code")
    assert "token'" not in repr(settings)
    assert "code'" not in repr(settings)


def test_the_token_file_of_a_second_process_may_be_gone(tmp_path: Path) -> None:
    environ = {**LEAST, "KICI_AGENT_TOKEN_FILE": str(tmp_path / "token")}
    assert read_settings(environ).token is None


def test_a_token_that_is_there_twice_is_taken_from_the_variable(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("file")
    environ = {
        **LEAST, "KICI_AGENT_TOKEN": "variable", "KICI_AGENT_TOKEN_FILE": str(tmp_path / "token"),
    }  # fmt: skip
    assert read_settings(environ).token == "variable"


@pytest.mark.parametrize("url", ["", "gateway:4000", "http://gateway", "ws://:4000", "wss://x:0"])
def test_a_url_that_is_no_gateways_is_refused(url: str) -> None:
    with pytest.raises(Unusable, match="KICI_ORCHESTRATOR_URL"):
        read_settings({**LEAST, "KICI_ORCHESTRATOR_URL": url})


@pytest.mark.parametrize("value", ["-1", "1.5", "٣", "5s"])
def test_a_duration_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(Unusable, match="KICI_SCALER_IDLE_TIMEOUT"):
        read_settings({**LEAST, "KICI_SCALER_IDLE_TIMEOUT": value})


@pytest.mark.parametrize(
    ("text", "labels"),
    [("", ()), ("a", ("a",)), (" a , b,,c ", ("a", "b", "c"))],
)
def test_labels_are_a_comma_list(text: str, labels: tuple[str, ...]) -> None:
    assert split_labels(text) == labels


def test_a_job_gets_what_it_may_see_then_what_it_is_then_what_it_asked_for() -> None:
    own = {"PATH": "/bin", "KICI_AGENT_STATE_DIR": "x", "KICI_LABELS": "a", "KICI_PORT": "0"}
    seen = job_environment(own, {"KICI_JOB_ID": "j"}, {"PATH": "/usr/bin"})
    assert seen == {"PATH": "/usr/bin", "KICI_LABELS": "a", "KICI_JOB_ID": "j"}
