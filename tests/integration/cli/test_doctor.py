"""`kici-scaler doctor` calls a healthy installation healthy, and says what is broken."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis

from kici_scaler.embedded.redis import EmbeddedRedis
from kici_scaler.store import machines, migrate, section
from kici_scaler.store.engine import transaction
from kici_scaler.store.machines import Announcement
from tests.integration.cli.conftest import Place
from tests.support.servers import Databases
from tests.support.waiting import free_port

CONTROL_QUEUES = {"queue:intake", "queue:admit", "queue:warm", "queue:housekeeping"}


def _message(place: Place, name: str, health: str, **changed: str) -> str:
    """What one finding says; a failure makes the whole end with 1, a warning with 0."""
    code, rows = place.doctor(**changed)
    assert rows[name]["health"] == health, rows
    failed = any(row["health"] == "fail" for row in rows.values())
    assert code == (1 if failed else 0)
    return str(rows[name]["message"])


def test_a_healthy_installation_passes(served: Place) -> None:
    code, rows = served.doctor()
    assert code == 0, rows
    assert not [name for name, row in rows.items() if row["health"] == "fail"], rows
    passed = {name for name, row in rows.items() if row["health"] == "pass"}
    assert {
        "environment", "settings", "sealing-keys", "scaler-file", "postgres", "clock", "schema",
        "admission-lock", "sweep", "configuration", "machines", "redis", "redis-eviction",
        "redis-mutex", "redis-clock",
    } | CONTROL_QUEUES <= passed  # fmt: skip
    assert {rows[name]["details"]["workers"] for name in CONTROL_QUEUES} == {1}


def test_people_get_the_same_as_a_table(served: Place) -> None:
    done = served.run("doctor")
    assert done.exit_code == 0
    for word in ("check", "health", "finding", "postgres", "queue:intake", "1 workers"):
        assert word in done.output


def test_looking_changes_nothing(served: Place) -> None:
    def size() -> object:
        with transaction(served.engine) as connection:
            return connection.exec_driver_sql(
                "SELECT (SELECT count(*) FROM audit), (SELECT count(*) FROM scale_requests),"
                " (SELECT count(*) FROM config_revisions), (SELECT count(*) FROM settings)"
            ).one()

    before = size()
    served.doctor()
    assert size() == before


def test_a_wrong_setting_is_named_with_its_variable(place: Place) -> None:
    assert "KICI_PORT" in _message(place, "settings", "fail", KICI_PORT="not-a-port")


@pytest.mark.parametrize(
    ("variable", "name"), [("KICI_DATABASE_URL", "postgres"), ("KICI_REDIS_URL", "redis")]
)
def test_a_server_that_nobody_named_is_missed(place: Place, variable: str, name: str) -> None:
    assert variable in _message(place, name, "fail", **{variable: ""})


def test_servers_that_do_not_answer_are_told_and_hide_nothing_else(place: Place) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    code, rows = place.doctor(
        KICI_DATABASE_URL=f"postgresql://kici:guessed-secret@{nobody}/kici",
        KICI_REDIS_URL=f"redis://:guessed-secret@{nobody}/0",
    )
    assert code == 1
    assert {rows["postgres"]["health"], rows["redis"]["health"]} == {"fail"}
    assert rows["scaler-file"]["health"] == "pass"
    assert "guessed-secret" not in str(rows)


def test_a_password_that_redis_does_not_know_is_told(place: Place) -> None:
    address = place.environment["KICI_REDIS_URL"].rpartition("@")[2]
    message = _message(place, "redis", "fail", KICI_REDIS_URL=f"redis://:wrong-secret@{address}")
    assert "cannot be asked" in message
    assert "wrong-secret" not in message


def test_a_database_without_schema_is_told_what_to_run(place: Place, empty_database: str) -> None:
    assert "kici-scaler migrate" in _message(
        place, "schema", "fail", KICI_DATABASE_URL=empty_database
    )


def test_a_migration_that_was_not_applied_is_told(place: Place, empty_database: str) -> None:
    migrate.upgrade(empty_database, "head-1")
    message = _message(place, "schema", "fail", KICI_DATABASE_URL=empty_database)
    assert migrate.head() in message
    assert "kici-scaler migrate" in message


def test_a_sweep_that_never_ran_is_told(place: Place, empty_database: str) -> None:
    migrate.upgrade(empty_database)
    assert "never ticked" in _message(place, "sweep", "fail", KICI_DATABASE_URL=empty_database)


def test_queues_without_consumers_are_named_with_the_command_that_helps(
    served: Place, databases: Databases
) -> None:
    elsewhere = served.environment["KICI_REDIS_URL"].rpartition("/")[0] + "/7"
    code, rows = served.doctor(KICI_REDIS_URL=elsewhere)
    assert code == 1
    assert {name for name in rows if rows[name]["health"] == "fail"} == CONTROL_QUEUES
    assert "`kici-scaler worker control`" in rows["queue:intake"]["message"]


def test_a_machine_whose_worker_consumes_nothing_is_told(served: Place) -> None:
    with transaction(served.engine) as connection:
        machines.announce(
            connection,
            Announcement("deaf", "bare-metal", "boot", "linux", "x64", 4_000, 1 << 33),
        )
    try:
        code, rows = served.doctor()
    finally:
        with transaction(served.engine) as connection:
            connection.exec_driver_sql("DELETE FROM machines WHERE machine_id = 'deaf'")
    failed = {name: row["message"] for name, row in rows.items() if row["health"] == "fail"}
    assert code == 1
    assert failed
    assert all(name.startswith("queue:machine.deaf.") for name in failed), failed
    assert all("`kici-scaler worker bare-metal`" in each for each in failed.values())


def test_a_clock_that_is_wrong_is_told_with_its_distance(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 60)
    _, rows = place.doctor()
    for name in ("clock", "redis-clock"):
        assert rows[name]["health"] == "warn"
        assert -1 < abs(rows[name]["details"]["seconds"]) - 60 < 20
        assert "behind" in rows[name]["message"]


def test_a_lock_that_somebody_holds_is_told(place: Place) -> None:
    with transaction(place.engine) as connection:
        section.enter(connection)
        assert "somebody holds it" in _message(place, "admission-lock", "fail")


@contextmanager
def _configured(server: EmbeddedRedis, **values: str) -> Iterator[None]:
    with closing(redis.Redis.from_url(server.url)) as client:
        names = [name.replace("_", "-") for name in values]
        before = {name: str(client.config_get(name)[name]) for name in names}
        for name, value in zip(names, values.values(), strict=True):
            client.config_set(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                client.config_set(name, value)


def test_a_redis_that_would_drop_queues_is_told(place: Place, redis_server: EmbeddedRedis) -> None:
    with _configured(redis_server, maxmemory="512mb", maxmemory_policy="allkeys-lru"):
        assert "noeviction" in _message(place, "redis-eviction", "fail")


def test_sealing_keys_that_others_may_read_are_told(place: Place, tmp_path: Path) -> None:
    copy = tmp_path / "keys.json"
    copy.write_bytes(Path(place.environment["KICI_SEAL_KEYS_PATH"]).read_bytes())
    copy.chmod(0o644)
    message = _message(place, "sealing-keys", "fail", KICI_SEAL_KEYS_PATH=str(copy))
    assert "may be read by others (mode 0644)" in message


def test_sealing_keys_that_are_missing_are_told(place: Place, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.json")
    assert gone in _message(place, "sealing-keys", "fail", KICI_SEAL_KEYS_PATH=gone)


def test_a_scaler_file_with_a_mistake_is_told(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "scalers.yaml"
    file.write_text("version: 1\nscalers: [{name: x, type: balloon}]\n")
    message = _message(place, "scaler-file", "fail", KICI_SCALER_CONFIG_PATH=str(file))
    assert "balloon" in message


def test_a_gateway_that_does_not_answer_is_only_a_warning(place: Place) -> None:
    _message(place, "gateway", "warn", KICI_URL=f"http://127.0.0.1:{free_port()}", KICI_API_KEY="k")
