"""Two installations, each with servers of its own, on one machine with one pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, text

from config.settings import Settings
from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import BackendType
from kici_scaler.service import admit, reload, request
from kici_scaler.service.request_body import parse_request
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import migrate
from kici_scaler.store.engine import Contended, make_engine
from tests.support.servers import Databases
from tests.support.waiting import eventually
from workers.host.host import BackendHost, HostOptions
from workers.ledger import MachineLedger
from workers.machine import boot_id

POOL = """
version: 1
machinePools:
  - name: shared
    cap: { maxCpu: 4 }
scalers:
  - name: local
    type: bare-metal
    maxAgents: 20
    machinePool: shared
    labelSets:
      - labels: [linux]
        binaryPath: builtin:agent
        resources: { cpus: 1 }
"""


class House:
    """One installation: its database, and a backend worker on the null backend."""

    def __init__(self, name: str, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.runtime = Runtime(engine, owner=name)
        settings = Settings(
            installation_id=name, machine_id="box", state_dir=folder, database_url=SecretStr("")
        )
        options = HostOptions(BackendType.BARE_METAL, stand_ins={"bare-metal": "null"})
        self.host = BackendHost(self.runtime, settings, options)

    def ask(self, count: int) -> None:
        """Ask for agents, and let the worker start what was reserved."""
        bodies = [
            parse_request(
                {
                    "jobId": f"job-{number}",
                    "runId": "run",
                    "labels": ["linux"],
                    "payload": {"keyId": "k", "sealed": "c2VhbGVk"},
                }
            )
            for number in range(count)
        ]
        request.submit(self.runtime, bodies)
        self.tick()

    def tick(self) -> None:
        """What the sweep does each second: decide what waits, and hint the worker."""
        with suppress(Contended):
            admit.run_pass(self.runtime)
        self.host.starts.prime()
        self.host.destroys.prime()

    def comes_to(self, condition: Callable[[], bool]) -> None:
        """Wait for it while time goes on as it does in an installation."""

        def look() -> bool:
            self.tick()
            return condition()

        eventually(look, within=60, why=self.told)

    def told(self) -> str:
        """Its rows, for the message of a failure."""
        with self.engine.connect() as connection:
            rows = connection.execute(
                text("""
                    SELECT r.job_id, r.state, r.wait_reason, s.state, s.attempts, s.lease_holder
                    FROM scale_requests r LEFT JOIN spawns s USING (job_id)
                """)
            )
            return "\n".join(str(tuple(row)) for row in rows)

    def count(self, statement: str) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text(statement)).scalar_one())

    @property
    def started(self) -> int:
        return self.count("SELECT count(*) FROM spawns WHERE backend_ref IS NOT NULL")

    @property
    def undecided(self) -> int:
        """Spawns that are on their way and neither started nor given back yet."""
        return self.count("SELECT count(*) FROM spawns WHERE backend_ref IS NULL")


@contextmanager
def _house(name: str, url: str, folder: Path) -> Iterator[House]:
    folder.mkdir()
    scalers = folder / "scalers.yaml"
    scalers.write_text(POOL)
    engine = make_engine(url, application=name, pool_size=20)
    reload.apply(Runtime(engine, name), reload.read(engine, scalers), author="test")
    house = House(name, engine, folder)
    house.host.open()
    try:
        yield house
    finally:
        house.host.close()
        engine.dispose()


def test_two_installations_never_pass_the_cap_of_their_pool_and_give_back_what_was_refused(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KICI_MACHINE_LEDGER_DIR", str(tmp_path / "ledger"))
    urls = [databases.create() for _ in range(2)]
    for url in urls:
        migrate.upgrade(url)
    with (
        _house("first", urls[0], tmp_path / "first") as first,
        _house("second", urls[1], tmp_path / "second") as second,
    ):
        first.ask(3)
        first.comes_to(lambda: first.started == 3)
        second.ask(4)
        second.comes_to(lambda: second.started == 1 and second.undecided == 0)
        _refused_wait_with_the_reason(second)
        ledger = MachineLedger(tmp_path / "ledger", "observer", boot_id())
        assert ledger.used("shared") == Need(4_000, 0)
        _room_of_the_first_goes_to_the_second(first, second)
        second.comes_to(lambda: ledger.used("shared") == Need(4_000, 0))
    for url in urls:
        databases.drop(url)


def _refused_wait_with_the_reason(house: House) -> None:
    """Nothing of a refusal is left behind, and the machine is spared for a while."""
    waiting = "FROM scale_requests WHERE state = 'waiting' AND requeues = 0"
    assert house.count(f"SELECT count(*) {waiting}") == 3
    assert house.count("SELECT count(*) FROM machines WHERE not_before IS NOT NULL") == 1
    with house.engine.begin() as connection:
        later = "clock_timestamp() + interval '1 hour'"  # so that it is not over here meanwhile
        connection.execute(text(f"UPDATE machines SET not_before = {later}"))
    told = f"SELECT count(*) {waiting} AND wait_reason LIKE '%another installation%'"
    house.comes_to(lambda: house.count(told) == 3)
    assert house.count("SELECT count(*) FROM agent_tokens") == 1
    assert house.count("SELECT (foreign_use ->> 'cpuMillis')::int FROM machines") == 3_000


def _room_of_the_first_goes_to_the_second(first: House, second: House) -> None:
    for number in range(3):
        request.cancel(first.runtime, f"job-{number}")
    first.comes_to(lambda: first.count("SELECT count(*) FROM spawns") == 0)
    with second.engine.begin() as connection:
        connection.execute(text("UPDATE machines SET not_before = clock_timestamp()"))
    second.comes_to(lambda: second.started == 4)
