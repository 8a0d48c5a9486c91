"""`kici-scaler up` as a person meets it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from kici_scaler.client import DispatcherClient, JobRequest, Payload
from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.leftovers import find_leftovers
from kici_scaler.embedded.ports import free_port
from kici_scaler.embedded.profile import LocalProfile, load_profile
from tests.support.children import is_gone
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "kici_scaler.cli.main")
SERVERS_ONLY = ("--only", "servers", "--port", "0", "--flower-port", "0")
FILE = """version: 1
scalers:
  - {name: local, type: %s, maxAgents: 2, labelSets: [{labels: [a]%s}]}
"""


@contextmanager
def own_place() -> Iterator[Path]:
    """A folder for data and configuration, with a state folder of its own."""
    place = make_temporary_home("kici-up-")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("KICI_")]:
            patch.delenv(name)
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        yield place
    shutil.rmtree(place)


@pytest.fixture
def place() -> Iterator[Path]:
    with own_place() as place:
        yield place


@dataclass(frozen=True)
class Standing:
    """An `up` that several tests ask."""

    place: Path
    pid: int
    profile: LocalProfile


@pytest.fixture(scope="class")
def standing() -> Iterator[Standing]:
    with own_place() as place, up(place, *SERVERS_ONLY) as (process, profile):
        yield Standing(place, process.pid, profile)


def kici(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@contextmanager
def up(place: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], LocalProfile]]:
    """A running `up` and where everything is; stopped at the end."""
    output = (place / "output").open("w+")
    with (
        output,
        subprocess.Popen(
            [*COMMAND, "up", "--data-dir", str(place / "data"), *options],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        try:
            eventually(
                lambda: process.poll() is not None or load_profile() is not None,
                within=90,
                why=lambda: (place / "output").read_text(),
            )
            profile = load_profile()
            assert profile is not None, (place / "output").read_text()
            yield process, profile
        finally:
            process.terminate()
            process.wait(60)


def dispatcher(profile: LocalProfile) -> DispatcherClient:
    assert profile.gateway_url is not None
    return DispatcherClient(profile.gateway_url, profile.dispatcher_key_path.read_text().strip())


def said(place: Path) -> str:
    return (place / "output").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_what_runs_where_until_it_is_stopped(place: Path, number: signal.Signals) -> None:
    with up(place, *SERVERS_ONLY) as (process, profile):
        eventually(lambda: "Ctrl-C stops it" in said(place))
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        assert process.wait(30) == 0
    assert said(place).endswith("stopped\n")
    assert str(place / "data") in said(place).replace("\n", "").replace("│ │       │ ", "")
    assert all(is_gone(child.pid) for child in children)
    assert load_profile() is None
    secrets = (profile.database_url, profile.redis_url)
    for url in secrets:
        password = url.get_secret_value().split("@")[0].rpartition(":")[2]
        assert password not in said(place)


def test_real_roles_work_and_come_back_when_killed(place: Path) -> None:
    file = place / "scalers.yaml"
    file.write_text(FILE % ("bare-metal", ", binaryPath: 'builtin:agent'"))
    roles = "control,bare-metal,beat,flower"
    options = ("--config", str(file), "--only", roles, "--port", "0", "--flower-port", "0")
    with up(place, *options) as (process, profile):
        assert profile.flower_url is not None
        password = profile.flower_password_path.read_text().strip()
        assert httpx.get(f"{profile.flower_url}/api/workers").status_code == 401
        flower = httpx.Client(base_url=profile.flower_url, auth=("kici", password))
        eventually(lambda: "bare-metal-" in flower.get("/").text, within=20)
        assert flower.post("/api/worker/shutdown/any").status_code == 403
        secrets = {profile.database_url.get_secret_value(), password}
        family = psutil.Process(process.pid).children(recursive=True)
        arguments = " ".join(argument for child in family for argument in child.cmdline())
        assert not any(secret in arguments for secret in secrets)

        (worker,) = [child for child in family if "machine." in " ".join(child.cmdline())]
        worker.kill()
        eventually(lambda: said(place).count("bare-metal | ready") == 2, within=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert all(is_gone(child.pid) for child in family)
    assert "ended by SIGKILL; starts again in 0.5 s" in said(place)


def test_a_running_job_outlives_a_killed_up(place: Path) -> None:
    file, begun, may_end = (place / name for name in ("scalers.yaml", "begun", "may-end"))
    file.write_text(FILE % ("bare-metal", ", binaryPath: 'builtin:agent'"))
    options = ("--config", str(file), "--port", "0", "--flower-port", "0")
    script = f"touch {begun}; until [ -e {may_end} ]; do sleep 0.2; done; echo over"
    try:
        with up(place, *options) as (process, profile):
            with dispatcher(profile) as client:
                payload = Payload(command=("sh", "-c", script))
                client.request(
                    JobRequest(job_id="job", run_id="run", labels=("a",), payload=payload)
                )
            eventually(begun.exists, within=60)
            process.kill()
        with up(place, *options) as (process, profile), dispatcher(profile) as client:
            assert client.get("job").state == "running"
            may_end.touch()
            assert client.wait("job", 60).state == "succeeded"
            assert [line.text for line in client.log("job")] == ["over"]
    finally:
        may_end.touch()


class TestWhileOneRuns:
    """Other commands beside an `up` that has only its servers."""

    def test_a_second_one_on_the_folder_is_refused(self, standing: Standing) -> None:
        data = standing.place / "data"
        second = kici("up", "--data-dir", str(data), *SERVERS_ONLY)
        assert second.returncode == 1
        assert f"pid {standing.pid}" in second.stderr
        assert second.stderr.startswith(f"error: the data folder {data} is in use by ")
        assert load_profile() == standing.profile

    def test_a_role_joins_it(self, standing: Standing) -> None:
        assert kici("migrate", "--check").stdout == "the schema is up to date\n"

    def test_the_environment_comes_first(self, standing: Standing) -> None:
        checked = kici("migrate", "--check", KICI_DATABASE_URL="postgresql://a@127.0.0.1:1/b")
        assert checked.returncode == 2
        assert checked.stderr.startswith(
            "error: the database postgresql+psycopg2://a@127.0.0.1:1/b"
        )

    def test_its_profile_is_for_its_owner_alone(self, standing: Standing) -> None:
        file = standing.place / "data" / "local.json"
        assert file.stat().st_mode & 0o777 == 0o600
        assert json.loads(file.read_text())["gateway_url"] is None


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def bad_starts(place: Path, taken_port: int) -> Mapping[str, tuple[list[str], dict[str, str], str]]:
    """What a person may get wrong: options, environment, and how the message begins."""
    nobody = free_port()
    unknown, broken = place / "unknown.yaml", place / "broken.yaml"
    unknown.write_text(FILE % ("cloud", ""))
    broken.write_text("version: 1\nscalers: [")
    return {
        "port in use": (["--port", str(taken_port)], {}, f"port {taken_port} on 127.0.0.1"),
        "wrong database": (
            [],
            {"KICI_DATABASE_URL": f"postgresql://kici:secret@127.0.0.1:{nobody}/kici"},
            f"the database postgresql+psycopg2://kici:***@127.0.0.1:{nobody}/kici cannot be used",
        ),
        "redis down": (
            [],
            {"KICI_REDIS_URL": f"redis://:secret@127.0.0.1:{nobody}/0"},
            f"the Redis redis://:***@127.0.0.1:{nobody}/0 cannot be used",
        ),
        "unknown type": (["--config", str(unknown)], {}, f"{unknown}:3: scalers[0].type"),
        "invalid yaml": (["--config", str(broken)], {}, f"{broken}"),
        "missing file": (["--config", str(place / "none.yaml")], {}, f"{place / 'none.yaml'}"),
        "unknown role": (["--only", "nix"], {}, "--only names nix"),
    }


@pytest.mark.parametrize(
    "mistake",
    [
        "port in use",
        "wrong database",
        "redis down",
        "unknown type",
        "invalid yaml",
        "missing file",
        "unknown role",
    ],
)
def test_a_mistake_is_told_in_one_message_and_nothing_is_started(
    place: Path, taken_port: int, mistake: str
) -> None:
    options, environment, message = bad_starts(place, taken_port)[mistake]
    defaults = [] if "--port" in options else ["--port", "0"]
    done = kici(
        "up", "--data-dir", str(place / "data"), "--flower-port", "0", *defaults, *options,
        **environment,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
    assert not (place / "data" / "postgres").exists()
    assert not find_leftovers("redis-server", place / "data" / "redis")


def test_data_of_another_version_is_told_and_left_alone(place: Path) -> None:
    data = place / "data" / "postgres"
    data.mkdir(parents=True)
    (place / "data" / "instance.lock").touch()
    (data / "PG_VERSION").write_text("9.6\n")
    if os.geteuid() == 0:
        os.chown(data, 65_534, 65_534)
    done = kici("up", "--data-dir", str(place / "data"), *SERVERS_ONLY)
    assert done.returncode == 2
    assert f"the data in {data} was made by PostgreSQL 9.6" in done.stderr
    assert "Traceback" not in done.stderr
    assert [each.name for each in data.iterdir()] == ["PG_VERSION"]
    assert not find_leftovers("redis-server", place / "data" / "redis")
