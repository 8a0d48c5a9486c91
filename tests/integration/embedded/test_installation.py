"""An installation starts as one and ends as one; roles are stand-ins here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg2
import pytest
import redis

from kici_scaler.embedded.child import Child, State
from kici_scaler.embedded.errors import FolderInUse, PortInUse, StartFailed, UnusableFolder
from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.leftovers import find_leftovers
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.ports import free_port
from kici_scaler.embedded.profile import load_profile
from kici_scaler.embedded.roles import RoleContext, by_ready_file
from kici_scaler.errors import Unavailable
from tests.support.children import is_gone
from tests.support.waiting import eventually

STAND_IN = (
    "import os, pathlib, signal;"
    "pathlib.Path(os.environ['KICI_READY_FILE']).touch();"
    "print('port', os.environ['KICI_PORT'], flush=True);"
    "signal.signal(signal.SIGTERM, lambda *_: os._exit(0));"
    "signal.pause()"
)
PLAN = Plan(roles=("control", "gateway"), durable=False)


def stand_ins(context: RoleContext) -> list[Child]:
    program = (sys.executable, "-S", "-c", STAND_IN)
    return [by_ready_file(context, role, program) for role in context.roles]


def failing(context: RoleContext) -> list[Child]:
    program = (sys.executable, "-S", "-c", "raise SystemExit('no such module')")
    return [by_ready_file(context, role, program) for role in context.roles]


@pytest.fixture
def home() -> Iterator[Path]:
    home = make_temporary_home("kici-installation-")
    yield home
    shutil.rmtree(home)


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state folder, so that no test finds or hides a real instance."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def tables(installation: Installation) -> int:
    url = installation.profile.database_url.get_secret_value().replace("+psycopg2", "")
    with closing(psycopg2.connect(url)) as session, session.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'spawns'")
        row = cursor.fetchone()
        assert row is not None
        return int(row[0])


def leftovers(home: Path) -> list[psutil.Process]:
    servers = {"postgres": home / "postgres", "redis-server": home / "redis"}
    return [each for name, folder in servers.items() for each in find_leftovers(name, folder)]


def test_servers_schema_and_roles_are_there_and_then_gone(home: Path) -> None:
    with Installation(PLAN, home, roles_of=stand_ins) as installation:
        assert set(installation.pids()) == {"postgres", "redis", "control", "gateway"}
        assert tables(installation) == 1
        with closing(
            redis.Redis.from_url(installation.profile.redis_url.get_secret_value())
        ) as client:
            assert client.ping()
        pids = installation.pids().values()
        port = installation.profile.gateway_port
        eventually(lambda: installation.log("gateway") == f"port {port}\n")
    assert all(is_gone(pid) for pid in pids)
    assert leftovers(home) == []


def test_a_second_start_finds_the_data_and_keeps_the_addresses(home: Path) -> None:
    with Installation(PLAN, home, roles_of=stand_ins) as first:
        url = first.profile.database_url.get_secret_value()
        with closing(psycopg2.connect(url.replace("+psycopg2", ""))) as session, session:
            session.cursor().execute("CREATE TABLE kept (id int)")
    with Installation(PLAN, home, roles_of=stand_ins) as second:
        assert second.profile.model_dump(exclude={"started"}) == first.profile.model_dump(
            exclude={"started"}
        )
        with closing(psycopg2.connect(url.replace("+psycopg2", ""))) as session:
            session.cursor().execute("SELECT * FROM kept")


def test_a_killed_server_comes_back_under_its_address(home: Path) -> None:
    with Installation(PLAN, home, roles_of=stand_ins) as installation:
        for server in ("postgres", "redis"):
            installation.kill(server)
            eventually(
                lambda server=server: (  # type: ignore[misc] # bound in the loop on purpose
                    installation.supervisor.starts(server) == 2
                    and installation.supervisor.states()[server] is State.READY
                ),
                within=30,
            )
        assert tables(installation) == 1


def test_a_role_that_does_not_start_takes_everything_down_again(home: Path) -> None:
    with (
        pytest.raises(StartFailed, match="no such module"),
        Installation(PLAN, home, roles_of=failing),
    ):
        pass
    assert leftovers(home) == []
    with Installation(PLAN, home, roles_of=stand_ins) as installation:
        assert tables(installation) == 1


def test_one_instance_a_folder(home: Path) -> None:
    with (
        Installation(PLAN, home, roles_of=stand_ins),
        pytest.raises(FolderInUse, match=rf"in use by .* \(pid {os.getpid()}, since "),
        Installation(PLAN, home, roles_of=stand_ins),
    ):
        pass


def test_a_folder_with_other_things_is_left_alone(home: Path) -> None:
    (home / "thesis.tex").write_text("")
    with pytest.raises(UnusableFolder, match="holds something else"), Installation(PLAN, home):
        pass
    assert [each.name for each in home.iterdir()] == ["thesis.tex"]


def test_a_gateway_port_in_use_stops_the_start_before_it_begins(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        text=True,
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline().split()[5])
        taken = replace(PLAN, gateway_port=port)
        with (
            pytest.raises(
                PortInUse, match=rf"port {port} on 127.0.0.1, meant for gateway, .*pid {other.pid}"
            ),
            Installation(taken, home, roles_of=stand_ins),
        ):
            pass
        assert not (home / "postgres").exists()
        other.kill()


def test_servers_of_somebody_else_are_used_and_left_running(
    home: Path, empty_database: str, redis_url: str
) -> None:
    plan = replace(PLAN, database_url=empty_database, redis_url=redis_url)
    with Installation(plan, home, roles_of=stand_ins) as installation:
        assert set(installation.pids()) == {"control", "gateway"}
        assert tables(installation) == 1
    with closing(redis.Redis.from_url(redis_url)) as client:
        assert client.ping()
    assert not (home / "postgres").exists()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            Plan(database_url="postgresql+psycopg2://kici:secret@127.0.0.1:{port}/kici"),
            r"the database postgresql\+psycopg2://kici:\*\*\*@127\.0\.0\.1:\d+/kici cannot be used",
        ),
        (
            Plan(redis_url="redis://:secret@127.0.0.1:{port}/0"),
            r"the Redis redis://:\*\*\*@127\.0\.0\.1:\d+/0 cannot be used",
        ),
    ],
)
def test_a_server_that_does_not_answer_stops_the_start_before_it_begins(
    home: Path, plan: Plan, message: str
) -> None:
    port = str(free_port())
    filled = replace(
        plan,
        database_url=plan.database_url and plan.database_url.format(port=port),
        redis_url=plan.redis_url and plan.redis_url.format(port=port),
    )
    with pytest.raises(Unavailable, match=message), Installation(filled, home):
        pass
    assert list(home.iterdir()) == []


def test_other_commands_find_a_running_instance_only(home: Path, state_home: Path) -> None:
    assert load_profile() is None
    announced = replace(PLAN, announced=True)
    with Installation(announced, home, roles_of=stand_ins) as installation:
        assert load_profile() == installation.profile
        assert load_profile(home) == installation.profile
        assert (home / "local.json").stat().st_mode & 0o777 == 0o600
        assert installation.profile.api_key_path.read_text().strip()
    assert load_profile() is None
    assert list((state_home / "kici-scaler").iterdir()) == []


def test_a_temporary_installation_leaves_no_folder() -> None:
    with Installation(PLAN, roles_of=stand_ins) as installation:
        folder = installation.profile.data_dir
        assert folder.is_dir()
    assert not folder.exists()


UP = """
import sys
from dataclasses import replace
from pathlib import Path
from kici_scaler.embedded.installation import Installation
from tests.integration.embedded.test_installation import PLAN, stand_ins
plan = replace(PLAN, announced=True)
installation = Installation(plan, Path(sys.argv[1]), roles_of=stand_ins)
installation.run(lambda ready: print("ready", flush=True))
"""


def test_after_a_killed_supervisor_nothing_runs_and_the_next_start_works(
    home: Path, state_home: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", UP, str(home)],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "ready\n"
        profile = load_profile()
        assert profile is not None
        children = psutil.Process(killed.pid).children(recursive=True)
        killed.send_signal(signal.SIGKILL)
    assert load_profile() is None
    with Installation(PLAN, home, roles_of=stand_ins) as installation:
        assert tables(installation) == 1
        assert installation.profile.gateway_url == profile.gateway_url
    assert not [child for child in children if not is_gone(child.pid)]
