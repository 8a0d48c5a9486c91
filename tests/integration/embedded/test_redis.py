"""The embedded Redis keeps what it acknowledged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
import redis

from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.ports import free_port
from kici_scaler.embedded.redis import STOP, EmbeddedRedis
from tests.support.children import is_gone
from tests.support.servers import running
from tests.support.waiting import eventually


@pytest.fixture
def server() -> Iterator[EmbeddedRedis]:
    home = make_temporary_home("kici-redis-")
    yield EmbeddedRedis(home, free_port())
    shutil.rmtree(home)


def client(server: EmbeddedRedis) -> redis.Redis:
    return redis.Redis.from_url(server.url)


def newest_log(server: EmbeddedRedis) -> Path:
    """The append-only file that is written to; newer servers have several, in a folder."""
    return max(server.folder.rglob("*.aof"), key=lambda path: path.name.endswith(".incr.aof"))


def is_on_disk(server: EmbeddedRedis, text: bytes) -> bool:
    return text in newest_log(server).read_bytes()


def test_data_outlives_a_killed_server(server: EmbeddedRedis) -> None:
    with running(server, STOP) as process, closing(client(server)) as session:
        session.set("kept", "yes")
        eventually(lambda: is_on_disk(server, b"kept"))
        process.send(signal.SIGKILL)
        assert process.wait(10)
    with running(server, STOP), closing(client(server)) as session:
        assert session.get("kept") == b"yes"


def test_data_outlives_an_orderly_stop(server: EmbeddedRedis) -> None:
    with running(server, STOP), closing(client(server)) as session:
        session.set("kept", "yes")
    with running(server, STOP), closing(client(server)) as session:
        assert session.get("kept") == b"yes"


def test_a_half_written_last_entry_is_cut_off(server: EmbeddedRedis) -> None:
    with running(server, STOP), closing(client(server)) as session:
        session.set("kept", "yes")
    with newest_log(server).open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$4\r\nlo")
    with running(server, STOP), closing(client(server)) as session:
        assert session.keys("*") == [b"kept"]


def test_a_server_that_lost_its_supervisor_is_stopped_by_the_next_start(
    server: EmbeddedRedis,
) -> None:
    server.prepare()
    command = server.command()
    account = command.account
    with subprocess.Popen(
        command.argv,
        env=dict(command.environment),
        cwd=command.directory,
        stdout=subprocess.DEVNULL,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    ) as orphan:
        eventually(server.is_ready)
        with running(server, STOP) as process:
            assert orphan.wait(10) == 0
            assert process.pid != orphan.pid


def test_it_is_set_up_so_that_no_message_is_dropped(server: EmbeddedRedis) -> None:
    with running(server, STOP), closing(client(server)) as session:
        found = {**session.config_get("append*"), **session.config_get("maxmemory-policy")}
    assert found["appendonly"] == "yes"
    assert found["appendfsync"] == "everysec"
    assert found["maxmemory-policy"] == "noeviction"


def test_nobody_without_the_password_is_served(server: EmbeddedRedis) -> None:
    with running(server, STOP) as process:
        with closing(redis.Redis(port=server.port)) as stranger, pytest.raises(redis.RedisError):
            stranger.ping()
        password = server.url.split("@")[0].split(":")[-1]
        assert password not in " ".join(psutil.Process(process.pid).cmdline())
        assert (server.folder / "redis.conf").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="changes accounts")
def test_it_does_not_run_as_root(server: EmbeddedRedis) -> None:
    with running(server, STOP) as process:
        assert psutil.Process(process.pid).uids().effective != 0
        assert not is_gone(process.pid)
