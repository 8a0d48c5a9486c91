"""A drill: the database is backed up, lost, restored onto another server, and work goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from kici_scaler.domain.request import RequestState
from kici_scaler.embedded.postgres import STOP, EmbeddedPostgres
from kici_scaler.errors import NotFound
from kici_scaler.service import explain_job, keys, operations, request, status
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import migrate
from kici_scaler.store.engine import make_engine
from tests.integration.gateway.house import House
from tests.support.servers import running
from tests.support.waiting import free_port


def tool(server: EmbeddedPostgres, name: str, url: str, *arguments: str) -> None:
    """Run one of Postgres' own programs on a database."""
    at = make_url(url)
    command = [
        str(server._programs / name), "--host", str(at.host), "--port", str(at.port),
        "--username", str(at.username), "--dbname", str(at.database), *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "PGPASSWORD": str(at.password)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def another_server(
    servers_home: Path, postgres_server: EmbeddedPostgres
) -> Iterator[EmbeddedPostgres]:
    """A Postgres that has never seen this installation."""
    home = servers_home / "restored"
    home.mkdir(mode=0o755)
    server = EmbeddedPostgres(
        home, free_port(), binaries=postgres_server._programs, durable=False, connections=20
    )
    with running(server, STOP):
        server.provision()
        yield server
    shutil.rmtree(home, ignore_errors=True)


def submit(house: House, runtime: Runtime, job_id: str) -> RequestState:
    (answer,) = request.submit(runtime, [parse_request(house.body(job_id))])
    return answer.state


def test_a_restored_backup_is_gone_on_with(
    house: House,
    postgres_server: EmbeddedPostgres,
    another_server: EmbeddedPostgres,
    tmp_path: Path,
) -> None:
    """Lost is what was committed after the backup; nothing is started before a person looked."""
    assert submit(house, house.runtime, "before") is RequestState.ASSIGNED
    dump = tmp_path / "backup.dump"
    tool(postgres_server, "pg_dump", house.database_url, "--format=custom", f"--file={dump}")
    assert submit(house, house.runtime, "after") is RequestState.ASSIGNED

    url = another_server.url
    tool(another_server, "pg_restore", url, "--no-owner", "--exit-on-error", str(dump))
    engine = make_engine(url, application="drill", pool_size=2)
    restored = Runtime(engine, "drill")
    try:
        assert migrate.current_problem(url) is None
        assert keys.authenticate(restored, house.operator) is not None
        assert explain_job.find(restored, "before").state is RequestState.ASSIGNED
        with pytest.raises(NotFound):
            explain_job.find(restored, "after")

        # The dispatcher, which has no end of it, asks again: it is taken, and waits.
        assert status.read(restored).held_back
        assert submit(house, restored, "after") is RequestState.WAITING
        assert operations.resume(restored, actor="drill")
        assert submit(house, restored, "later") is RequestState.ASSIGNED
        assert explain_job.find(restored, "after").state is RequestState.ASSIGNED
        assert {row.action for row in operations.audited(restored, 1)} == {"resume"}
    finally:
        engine.dispose()
