"""The command line as a person and a script meet it, on a whole running installation."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kici_scaler.sealing import seal
from tests.e2e.site import LONG, Site, open_site
from tests.support.waiting import eventually

ON_DEMO = ("request", "--labels", "linux,demo")
NEVER_RAN = 125
TIMED_OUT = 124
INTERRUPTED = 130


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with open_site() as site:
        yield site


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def message_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one message of a command that failed."""
    assert "Traceback" not in done.stderr
    messages = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(messages) == 1, done.stderr
    return messages[0]


def test_it_gives_the_output_and_the_exit_code_of_the_job(site: Site) -> None:
    done = site.run(*ON_DEMO, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout == "out\n"
    assert "err" in done.stderr.splitlines()


def test_a_signal_shows_in_the_exit_code(site: Site) -> None:
    done = site.run(*ON_DEMO, "--quiet", "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stdout == done.stderr == ""


def test_a_program_reads_the_result_as_json(site: Site) -> None:
    options = ("--json", "--quiet", "--env", "WORD=a b", "--job-id", "as-json")
    done = site.run(*ON_DEMO, *options, "sh", "-c", 'echo "$WORD"')
    result = document(done)
    assert done.stderr == "a b\n"
    assert {result[key] for key in ("jobId", "state", "exitCode")} == {
        "as-json",
        "succeeded",
        0,
    }
    assert result["agentId"].startswith("scaler-bare-metal-")


def test_the_same_job_asked_for_again_runs_once(site: Site, tmp_path: Path) -> None:
    again = (*ON_DEMO, "--job-id", "again", "--", "sh", "-c", f"echo ran | tee -a {tmp_path}/f")
    first, second = site.run(*again), site.run(*again)
    assert first.returncode == second.returncode == 0
    assert first.stdout == second.stdout == "ran\n"
    assert (tmp_path / "f").read_text() == "ran\n"


def test_a_job_past_its_time_is_cancelled(site: Site) -> None:
    late = (*ON_DEMO, "--timeout", "3", "--job-id", "late", "--", "sleep", "300")
    assert site.run(*late).returncode == TIMED_OUT
    assert site.scaler.get("late").state == "cancelled"
    site.expect_no_agent_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_cancels_its_job(site: Site, number: signal.Signals) -> None:
    job_id = f"interrupted-{number.name}"
    with site.start(*ON_DEMO, "--job-id", job_id, "--", "sleep", "300") as command:
        site.agent_of(job_id)
        command.send_signal(number)
        assert command.wait(LONG) == INTERRUPTED
        assert command.stderr is not None
        assert "Traceback" not in command.stderr.read()
    assert site.scaler.get(job_id).state == "cancelled"
    site.expect_no_agent_left()


def test_a_job_that_nobody_waits_for_is_looked_at_later(site: Site) -> None:
    started = site.run(*ON_DEMO, "--no-wait", "--", "sh", "-c", "echo later; exit 4")
    assert started.returncode == 0
    job_id = started.stdout.strip()
    assert site.ask("requests", "log", job_id).stdout == "later\n"
    assert site.result(job_id).exit_code == 4
    shown = document(site.ask("requests", "show", job_id, "--json"))
    assert (shown["state"], shown["result"]["exitCode"]) == ("failed", 4)
    listed = site.ask("requests", "list", "--all")
    assert [line for line in listed.stdout.splitlines() if job_id in line and "code 4" in line]


def test_a_payload_comes_from_a_file(site: Site) -> None:
    payload = {"command": ["cat"], "stdin": "from a file"}
    done = site.run(*ON_DEMO, "--payload", "-", stdin=json.dumps(payload))
    assert (done.returncode, done.stdout) == (0, "from a file\n")


@pytest.fixture
def clean(site: Site) -> Iterator[Site]:
    """The site without any agent, on which the test may leave nothing."""
    site.expect_no_agent_left()
    yield site
    assert site.gateway.get("/v1/requests")["requests"] == []
    assert site.agents() == []


def test_labels_that_nobody_offers(clean: Site) -> None:
    done = clean.ask("request", "--labels", "linux,quantum", "--job-id", "lost", "--", "true")
    assert done.returncode == NEVER_RAN
    assert "quantum" in message_of(done)
    assert clean.scaler.get("lost").state == "cancelled"


def test_a_label_that_is_none(clean: Site) -> None:
    done = clean.ask("request", "--labels", "x" * 200, "--", "true")
    assert done.returncode == NEVER_RAN
    assert "labels.0" in message_of(done)


def test_resources_that_are_none(clean: Site) -> None:
    done = clean.ask(*ON_DEMO, "--memory", "lots", "--", "true")
    assert done.returncode == NEVER_RAN
    assert "lots" in message_of(done)


def test_a_payload_that_is_not_json(clean: Site) -> None:
    done = clean.run(*ON_DEMO, "--payload", "-", stdin="command: [make]")
    assert done.returncode == NEVER_RAN
    assert "is not JSON" in message_of(done)


def test_a_payload_that_is_too_large(clean: Site) -> None:
    done = clean.run(*ON_DEMO, "--payload", "-", stdin=json.dumps(
        {"command": ["cat"], "stdin": "x" * 100_000}
    ))  # fmt: skip
    assert done.returncode == NEVER_RAN
    assert "is too large" in message_of(done)


def test_what_was_sealed_is_no_payload(clean: Site) -> None:
    sealed = seal(clean.scaler.sealing_key(), b"make test").as_json()
    body = {"jobId": "sealed", "runId": "e2e", "labels": ["linux", "demo"], "payload": sealed}
    clean.gateway.post("/v1/requests", body)
    result = clean.result("sealed")
    assert (result.state, result.exit_code) == ("failed", None)
    assert "the job's payload cannot be used" in str(result.error)
    clean.expect_no_agent_left()


def test_a_job_that_there_is_not(clean: Site) -> None:
    for command in (("show", "nix"), ("log", "nix")):
        done = clean.ask("requests", *command)
        assert done.returncode == 1
        assert "'nix'" in message_of(done)


def test_a_gateway_that_there_is_not(clean: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Site, "environment", {**clean.environment, "KICI_URL": "http://[::1]:9"})
    done = clean.ask("status")
    assert done.returncode == 2
    assert "was not answered" in message_of(done)


def test_an_agent_is_seen_read_and_destroyed(site: Site) -> None:
    site.submit("seen", "echo at work; sleep 300")
    agent_id = site.agent_of("seen")["agentId"]
    listed = site.ask("agents", "list")
    assert [line for line in listed.stdout.splitlines()
            if agent_id in line and "busy" in line and "seen" in line]  # fmt: skip
    assert agent_id in site.ask("agents", "show", agent_id).stdout
    eventually(lambda: site.ask("agents", "logs", agent_id).stdout == "at work\n", LONG)
    assert site.ask("agents", "destroy", agent_id).returncode == 0
    result = site.result("seen")
    assert result.state == "failed"
    assert "destroyed by an operator" in str(result.error)
    site.expect_no_agent_left()
    assert site.ask("agents", "logs", agent_id).stdout == "at work\n"
    assert "destroyed by an operator" in site.ask("agents", "list", "--gone", "1").stdout


def test_a_draining_cluster_lets_demand_wait(site: Site) -> None:
    assert document(site.ask("drain", "on", "--json"))["draining"] is True
    site.submit("patient", "true")
    waiting = site.ask("requests", "list", "--state", "waiting").stdout
    assert [line for line in waiting.splitlines() if "patient" in line and "drain" in line]
    assert "drains" in site.ask("status").stdout
    assert "takes new demand" in site.ask("drain", "off").stdout
    assert site.result("patient").succeeded


def test_status_and_capacity_for_programs(site: Site) -> None:
    status = document(site.ask("status", "--json"))
    assert [each["name"] for each in status["backends"]] == ["local"]
    assert document(site.ask("capacity", "--json"))["scalers"][0]["total"] == 6


def test_where_a_job_can_be_served(site: Site) -> None:
    served = site.ask("can-serve", "--labels", "linux,demo")
    assert (served.returncode, "serves this job" in served.stdout) == (0, True)
    lost = site.ask("can-serve", "--labels", "quantum", "--json")
    assert lost.returncode == 1
    assert json.loads(lost.stdout)["served"] is False
