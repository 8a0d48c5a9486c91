"""Are the servers that somebody else runs there, and fit? Asked before anything is started."""

from __future__ import annotations

from contextlib import closing
from typing import Final

import psycopg2
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from kici_scaler.errors import InvalidInput, Unavailable

OLDEST_POSTGRES: Final = 15
OLDEST_REDIS: Final = (6, 2)
"""Messages of killed workers are given back with a command that came with 6.2."""
TIMEOUT: Final = 5
NOT_A_URL: Final = (ArgumentError, ValueError)


def check_database(url: str) -> None:
    """Log in once.

    Raises:
        InvalidInput: not a URL of a Postgres database.
        Unavailable: it does not answer, refuses the login, or is too old.
    """
    parsed = _database_url(url)
    where = parsed.render_as_string(hide_password=True)
    plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with closing(psycopg2.connect(plain, connect_timeout=TIMEOUT)) as session:
            major = session.server_version // 10_000
    except psycopg2.OperationalError as error:
        raise Unavailable(
            f"the database {where} cannot be used: {_first_line(error)}",
            hint="Check KICI_DATABASE_URL, or unset it to use the embedded server.",
        ) from error
    if major < OLDEST_POSTGRES:
        raise Unavailable(
            f"the database {where} is PostgreSQL {major}",
            hint=f"PostgreSQL {OLDEST_POSTGRES} or newer is needed.",
        )


def check_redis(url: str) -> tuple[str, ...]:
    """Say hello once; warnings about settings that lose messages.

    Raises:
        InvalidInput: not a URL of a Redis.
        Unavailable: it does not answer, refuses the login, or is too old.
    """
    where = redis_without_password(url)
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT,
            socket_connect_timeout=TIMEOUT,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
    except ValueError as error:
        raise InvalidInput(
            f"KICI_REDIS_URL is not a URL of a Redis: {_first_line(error)}",
            hint="Write redis://:PASSWORD@HOST:PORT/0.",
        ) from error
    try:
        with closing(client):
            version = str(client.info("server")["redis_version"])
            policy = client.info("memory").get("maxmemory_policy", "noeviction")
    except redis.RedisError as error:
        raise Unavailable(
            f"the Redis {where} cannot be used: {_first_line(error)}",
            hint="Check KICI_REDIS_URL, or unset it to use the embedded server.",
        ) from error
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        raise Unavailable(
            f"the Redis {where} is version {version}", hint="Redis 6.2 or newer is needed."
        )
    if policy == "noeviction":
        return ()
    return (f"the Redis {where} may evict queues: set maxmemory-policy to noeviction",)


def redis_without_password(url: str) -> str:
    """The URL as it may be shown."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except NOT_A_URL:
        return "(not a URL)"


def _database_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except NOT_A_URL as error:
        raise InvalidInput(
            "KICI_DATABASE_URL is not a URL",
            hint="Write postgresql+psycopg2://USER:PASSWORD@HOST:PORT/DATABASE.",
        ) from error
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise InvalidInput(
            f"KICI_DATABASE_URL names {parsed.get_backend_name()!r}, not PostgreSQL",
            hint="Write postgresql+psycopg2://USER:PASSWORD@HOST:PORT/DATABASE.",
        )
    return parsed


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
