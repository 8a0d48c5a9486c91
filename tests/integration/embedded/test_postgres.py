"""The embedded Postgres survives what happens to processes and folders."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import psycopg2
import pytest

from kici_scaler.embedded.account import account_for, give
from kici_scaler.embedded.errors import OtherVersion, StartFailed, UnusableFolder
from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.leftovers import find_leftovers
from kici_scaler.embedded.ports import free_port
from kici_scaler.embedded.postgres import STOP, EmbeddedPostgres
from kici_scaler.embedded.process import Process
from tests.support.children import is_gone
from tests.support.servers import running
from tests.support.waiting import eventually

only_as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes accounts")


@pytest.fixture(scope="module")
def made_home() -> Iterator[Path]:
    """A home on which the server ran once and holds one committed row."""
    home = make_temporary_home("kici-postgres-")
    server = EmbeddedPostgres(home, free_port(), durable=False)
    with running(server, STOP):
        server.provision()
        run(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    yield home
    shutil.rmtree(home)


@pytest.fixture
def server(made_home: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(made_home, free_port(), durable=False)


def run(server: EmbeddedPostgres, statement: str) -> list[tuple[object, ...]]:
    with closing(psycopg2.connect(server.url.replace("+psycopg2", ""))) as session:
        session.autocommit = True
        with session.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []


def start_orphan(server: EmbeddedPostgres) -> int:
    """Start the server from a process that is killed, without the kernel passing that on."""
    code = (
        "import os, subprocess, sys; sys.path.insert(0, sys.argv[1]);"
        "from tests.integration.embedded.test_postgres import orphan; orphan(*sys.argv[2:])"
    )
    root = str(Path(__file__).parents[3])
    arguments = [sys.executable, "-c", code, root, str(server.home), str(server.port)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=root)
    return int(done.stdout)


def orphan(home: str, port: str) -> None:
    server = EmbeddedPostgres(Path(home), int(port), durable=False)
    server.prepare()
    command = server.command()
    account = command.account
    child = subprocess.Popen(
        command.argv,
        env=dict(command.environment),
        cwd=command.directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )
    eventually(server.is_ready)
    print(child.pid)


def test_data_outlives_a_killed_server(server: EmbeddedPostgres) -> None:
    with running(server, STOP) as process:
        run(server, "INSERT INTO kept VALUES (43)")
        process.send(signal.SIGKILL)
        assert process.wait(10)
    with running(server, STOP):
        assert sorted(run(server, "SELECT answer FROM kept")) == [(42,), (43,)]
        run(server, "DELETE FROM kept WHERE answer = 43")


def test_sessions_of_a_killed_server_do_not_hinder_the_next(server: EmbeddedPostgres) -> None:
    with (
        running(server, STOP) as process,
        closing(psycopg2.connect(server.url.replace("+psycopg2", ""))) as session,
    ):
        backend = session.info.backend_pid
        os.kill(backend, signal.SIGSTOP)
        process.send(signal.SIGKILL)
        assert process.wait(10)
        assert not is_gone(backend)
        with running(server, STOP):
            assert is_gone(backend)
            assert run(server, "SELECT answer FROM kept") == [(42,)]


def test_a_server_that_lost_its_supervisor_is_stopped_by_the_next_start(
    server: EmbeddedPostgres,
) -> None:
    pid = start_orphan(server)
    assert not is_gone(pid)
    with running(server, STOP) as process:
        assert is_gone(pid)
        assert process.pid != pid
        assert run(server, "SELECT answer FROM kept") == [(42,)]


def test_a_pid_file_that_names_a_stranger_hurts_neither(server: EmbeddedPostgres) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        stale = server.folder / "postmaster.pid"
        stale.write_text(f"{stranger.pid}\n{server.folder}\n0\n{server.port}\n\n127.0.0.1\n")
        give(stale, account_for(server.folder))
        with running(server, STOP):
            assert run(server, "SELECT answer FROM kept") == [(42,)]
        assert stranger.poll() is None
        stranger.kill()


def test_it_goes_when_the_process_that_started_it_is_killed(server: EmbeddedPostgres) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from kici_scaler.embedded.postgres import EmbeddedPostgres;"
        "from kici_scaler.embedded.process import Process;"
        "server = EmbeddedPostgres(Path(sys.argv[1]), int(sys.argv[2]), durable=False);"
        "server.prepare(); process = Process(server.command(), print);"
        "print('pid', process.pid, flush=True); process.wait()"
    )
    arguments = [sys.executable, "-c", code, str(server.home), str(server.port)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline().removeprefix("pid "))
        eventually(server.is_ready)
        starter.kill()
    eventually(lambda: is_gone(pid))
    assert not (server.folder / "postmaster.pid").exists()  # it stopped in order


def test_a_half_made_data_folder_is_made_anew(tmp_path: Path) -> None:
    home = make_temporary_home("kici-postgres-")
    try:
        (home / "postgres.new").mkdir()
        (home / "postgres.new" / "base").mkdir()
        server = EmbeddedPostgres(home, free_port(), durable=False)
        with running(server, STOP):
            assert server.is_ready()
        assert not (home / "postgres.new").exists()
        assert not (home / "postgres.password").exists()
    finally:
        shutil.rmtree(home)


def test_data_of_another_version_is_left_alone(server: EmbeddedPostgres) -> None:
    version = server.folder / "PG_VERSION"
    ours = version.read_text()
    version.write_text("12\n")
    try:
        with pytest.raises(OtherVersion, match=r"made by PostgreSQL 12, .* is PostgreSQL \d+"):
            server.prepare()
    finally:
        version.write_text(ours)


def test_a_port_in_use_is_named_by_the_server(server: EmbeddedPostgres) -> None:
    with running(server, STOP):
        other = make_temporary_home("kici-postgres-")
        second = EmbeddedPostgres(other, server.port, durable=False)
        second.prepare()
        process = Process(second.command(), lambda _line: None)
        assert process.wait(20)
        shutil.rmtree(other)
        assert "could not bind" in " ".join(process.tail())


@only_as_root
def test_a_folder_closed_to_the_servers_account_is_refused() -> None:
    closed = make_temporary_home("kici-closed-")
    closed.chmod(0o700)
    home = closed / "data"
    home.mkdir()
    try:
        with pytest.raises(UnusableFolder, match=rf"cannot enter {closed}$") as refused:
            EmbeddedPostgres(home, free_port()).prepare()
        assert refused.value.hint.endswith(f"chmod o+x {closed}")
        assert list(home.iterdir()) == []
    finally:
        shutil.rmtree(closed)


@only_as_root
def test_neither_server_nor_data_belong_to_root(server: EmbeddedPostgres) -> None:
    with running(server, STOP) as process:
        assert psutil.Process(process.pid).uids().effective != 0
        assert server.folder.stat().st_uid != 0


def test_passwords_are_in_no_argument(server: EmbeddedPostgres) -> None:
    with running(server, STOP) as process:
        secrets = {path.read_text().strip() for path in (server.home / "secrets").iterdir()}
        seen = " ".join(psutil.Process(process.pid).cmdline())
        assert not any(secret in seen for secret in secrets)
        modes = {path.stat().st_mode & 0o777 for path in (server.home / "secrets").iterdir()}
        assert modes == {0o600}


def test_a_stopped_server_leaves_no_process(server: EmbeddedPostgres) -> None:
    with running(server, STOP):
        assert find_leftovers("postgres", server.folder)
    assert find_leftovers("postgres", server.folder) == []


def test_a_server_that_cannot_make_its_data_says_why(tmp_path: Path) -> None:
    home = make_temporary_home("kici-postgres-")
    (home / "bin").mkdir()
    (home / "bin" / "initdb").write_text("#!/bin/sh\necho no space left >&2; exit 1\n")
    (home / "bin" / "initdb").chmod(0o755)
    try:
        with pytest.raises(StartFailed, match="no space left"):
            EmbeddedPostgres(home, free_port(), binaries=home / "bin").prepare()
        assert not (home / "postgres").exists()
    finally:
        shutil.rmtree(home)
