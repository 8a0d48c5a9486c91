"""Whether a secret came out: every secret of an installation, looked for in all that it wrote."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import redis
from sqlalchemy import Engine, text
from sqlalchemy.engine import make_url

from kici_scaler.sealing import load_keys
from tests.support.waiting import processes_of

if TYPE_CHECKING:
    from kici_scaler.embedded.profile import LocalProfile

PLANTED: Final = "planted-1f6d0b52c4e94a7f8b7e-in-every-job"
"""Stands in the payload of each job, which nobody but its agent may read."""
SECRETS_FOLDER: Final = "secrets"
"""Where an installation keeps them; for its owner's eyes only."""


def secrets_of(profile: LocalProfile) -> Mapping[str, str]:
    """Every secret of an installation, by what it is."""
    found = {
        "a job's payload": PLANTED,
        "the operator's key": profile.api_key_path.read_text().strip(),
        "the dispatcher's key": profile.dispatcher_key_path.read_text().strip(),
    }
    for name, url in (("database", profile.database_url), ("Redis", profile.redis_url)):
        password = make_url(url.get_secret_value()).password
        if password:
            found[f"the password of the {name}"] = str(password)
    for number, key in enumerate(load_keys(profile.seal_keys_path).keys):
        found[f"sealing key {number}"] = base64.b64encode(key.private_key).decode().rstrip("=")
    return found


def in_files(folder: Path, secrets: Mapping[str, str]) -> list[str]:
    """Which secret stands in which file below a folder; how many files were read, at the end."""
    return [
        f"{what} stands in {file.relative_to(folder)}"
        for file in _written(folder)
        for what, secret in secrets.items()
        if secret.encode() in file.read_bytes()
    ]


def _written(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and SECRETS_FOLDER not in file.relative_to(folder).parts:
            yield file


def in_rows(engine: Engine, secrets: Mapping[str, str]) -> list[str]:
    """Which secret stands in which table."""
    found = []
    with engine.connect() as connection:
        tables = connection.execute(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ).scalars()
        for table in list(tables):
            for what, secret in secrets.items():
                held = connection.execute(
                    text(f'SELECT count(*) FROM "{table}" t WHERE position(:s IN t::text) > 0'),
                    {"s": secret},
                ).scalar_one()
                found += [f"{what} stands in {held} rows of {table}"] if held else []
    return found


def in_redis(url: str, secrets: Mapping[str, str]) -> list[str]:
    """Which secret stands under which key: tasks that wait, their results, live logs."""
    with closing(redis.Redis.from_url(url)) as client:
        return [
            f"{what} stands in Redis under {key!r}"
            for key in client.scan_iter()
            for what, secret in secrets.items()
            if secret in _value(client, key)
        ]


def _value(client: redis.Redis, key: bytes) -> str:
    """Everything under a key, as text; empty once it is gone."""
    match client.type(key):
        case b"string":
            return repr(client.get(key))
        case b"list":
            return repr(client.lrange(key, 0, -1))
        case b"hash":
            return repr(client.hgetall(key))
        case b"set":
            return repr(client.smembers(key))
        case b"zset":
            return repr(client.zrange(key, 0, -1))
        case b"stream":
            return repr(client.xrange(key))
    return ""


def in_arguments(marker: str, secrets: Mapping[str, str]) -> list[str]:
    """Which secret everybody on this machine reads in the arguments of a live process.

    Args:
        marker: what the environments of the processes to look at hold.
    """
    found = []
    for process in processes_of(marker):
        try:
            arguments = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        found += [f"{what} stands in the arguments of process {process.pid}"
                  for what, secret in secrets.items() if secret in arguments]  # fmt: skip
    return found


def everywhere(
    roles: LocalProfile, servers: LocalProfile, engine: Engine, secrets: Mapping[str, str]
) -> list[str]:
    """Whatever came out of an installation whose roles and servers still run."""
    return [
        *in_rows(engine, secrets),
        *in_redis(servers.redis_url.get_secret_value(), secrets),
        *in_arguments(roles.installation_id, secrets),
        *(each for its in (roles, servers) for each in in_files(its.data_dir / "logs", secrets)),
    ]
