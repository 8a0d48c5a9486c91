"""`kici-scaler doctor`: whether this environment is fit to run a role, and what is not."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import typer

from kici_scaler.cli import access
from kici_scaler.cli.failures import read_settings
from kici_scaler.cli.output import AsJson, print_json
from kici_scaler.cli.render import print_table
from kici_scaler.domain.diagnosis import Health, Row, worst
from kici_scaler.errors import ExitCode, KiciError

if TYPE_CHECKING:
    from config.settings import Settings
    from kici_scaler.service.checkup import Place

OLDEST_PYTHON: Final = (3, 11)
PACKAGES: Final = ("celery", "kombu", "redis", "sqlalchemy", "psycopg2-binary", "fastapi")
"""What behaviour depends on most, for whoever reports it."""
_EXITS: Final = {Health.PASS: ExitCode.OK, Health.WARN: ExitCode.OK, Health.FAIL: ExitCode.INVALID}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(as_json: AsJson = False) -> None:
    """Check this environment: versions, settings, servers, clocks, schema, lock, queues.

    Looks at what `KICI_…` variables name, else at the installation that runs here. Changes
    nothing. Ends with 1 when any check fails; warnings end with 0.

    Example: kici-scaler doctor --json
    """
    rows = list(_rows())
    health = worst(rows)
    if as_json:
        print_json({"health": health.value, "rows": [_document(row) for row in rows]})
    else:
        found = [(row.name, row.health.value, row.message) for row in rows]
        print_table(("check", "health", "finding"), found, empty="")
    raise typer.Exit(_EXITS[health])


def _document(row: Row) -> dict[str, object]:
    return {"name": row.name, "health": row.health.value, "message": row.message,
            "details": dict(row.details)}  # fmt: skip


def _rows() -> Iterator[Row]:
    yield _environment()
    try:
        its = _settings()
    except KiciError as error:
        yield Row("settings", Health.FAIL, f"{error}. {error.hint}", {})
        return
    yield Row("settings", Health.PASS, f"installation {its.installation_id}", {})
    yield from _keys(its)
    yield from _scaler_file(its)
    yield from _servers(its)
    yield _gateway()


def _environment() -> Row:
    recent = sys.version_info >= OLDEST_PYTHON
    packages = {name: _version(name) for name in PACKAGES}
    return Row(
        "environment", Health.PASS if recent else Health.FAIL,
        f"kici-scaler {_version('kici-scaler')}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {number}" for name, number in packages.items()),
        {"python": platform.python_version(), "platform": platform.platform(), **packages},
    )  # fmt: skip


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _settings() -> Settings:
    """Of the environment, filled up from the installation that runs here."""
    its = read_settings()
    profile = access.local_instance()
    if its.database_url.get_secret_value() or profile is None:
        return its
    return its.model_copy(
        update={
            "database_url": profile.database_url,
            "redis_url": profile.redis_url,
            "seal_keys_path": profile.seal_keys_path,
            "installation_id": profile.installation_id,
        }
    )


def _keys(its: Settings) -> Iterator[Row]:
    """The file of sealing keys: there, and for its owner only."""
    from kici_scaler.sealing import load_keys

    path = its.seal_keys_path
    if path is None:
        yield Row("sealing-keys", Health.WARN, "KICI_SEAL_KEYS_PATH is not set; gateways need it",
                  {})  # fmt: skip
        return
    try:
        held = len(load_keys(path).keys)
    except (KiciError, OSError) as error:
        yield Row("sealing-keys", Health.FAIL, str(error), {})
        return
    yield Row("sealing-keys", Health.PASS, f"{held} in {path}", {"keys": held})


def _scaler_file(its: Settings) -> Iterator[Row]:
    from kici_scaler.scalers_file import load

    if its.scaler_config_path is None:
        return
    try:
        loaded = load(its.scaler_config_path, its.scaler_config_dir)
    except KiciError as error:
        yield Row("scaler-file", Health.FAIL, str(error), {})
        return
    health = Health.WARN if loaded.warnings else Health.PASS
    remarks = "; ".join(["valid", *map(str, loaded.warnings)])
    yield Row("scaler-file", health, f"{its.scaler_config_path}: {remarks}", {})


def _servers(its: Settings) -> Iterator[Row]:
    found: list[Place] = []
    if its.database_url.get_secret_value():
        yield from _guarded("postgres", lambda: _database(its, found))
    else:
        yield Row("postgres", Health.FAIL, "KICI_DATABASE_URL is not set, and none runs here", {})
    if its.redis_url.get_secret_value():
        yield from _guarded("redis", lambda: _redis(its, found))
    else:
        yield Row("redis", Health.FAIL, "KICI_REDIS_URL is not set, and none runs here", {})


def _database(its: Settings, found: list[Place]) -> Iterator[Row]:
    from kici_scaler.service import checkup
    from kici_scaler.service.runtime import Runtime
    from kici_scaler.store import migrate
    from kici_scaler.store.engine import make_engine

    url = its.database_url.get_secret_value()
    engine = make_engine(url, application="doctor", pool_size=1)
    runtime = Runtime(engine, "doctor")
    try:
        yield from checkup.database(runtime)
        problem = migrate.current_problem(url)
        if problem is not None:
            yield Row("schema", Health.FAIL, problem, {})
            return
        yield Row("schema", Health.PASS, f"at {migrate.head()}, or newer", {})
        yield from checkup.work(runtime)
        found.extend(checkup.places(runtime))
    finally:
        engine.dispose()


def _redis(its: Settings, found: list[Place]) -> Iterator[Row]:
    from kici_scaler.broker import checkup

    url = its.redis_url.get_secret_value()
    yield from checkup.server(url)
    if its.mutex_url != url:
        for row in checkup.server(its.mutex_url):
            yield Row(f"lock-{row.name}", row.health, row.message, row.details)
    yield from checkup.queues(url, found)


def _guarded(name: str, rows: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """The rows of a server; one that says it cannot be asked, when that is so."""
    from redis import RedisError

    try:
        yield from rows()
    except KiciError as error:
        yield Row(name, Health.FAIL, str(error).splitlines()[0], {})
    except RedisError as error:
        yield Row(name, Health.FAIL, f"cannot be asked: {error}", {})


def _gateway() -> Row:
    """Whether the gateway that commands talk to answers, and knows the key."""
    try:
        with access.operator() as gateway:
            rows = gateway.get("/v1/diagnosis")["rows"]
    except KiciError as error:
        return Row("gateway", Health.WARN, str(error), {})
    bad = sorted(row["name"] for row in rows if row["health"] != "pass")
    return Row(
        "gateway", Health.PASS,
        "answers, and knows the key"
        + (f"; `kici-scaler diagnose` has something to say on {', '.join(bad)}" if bad else ""),
        {},
    )  # fmt: skip
