"""The embedded servers answer."""

from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest
import redis

from kici_scaler.embedded.postgres import EmbeddedPostgres
from tests.support.servers import Databases


def plain(url: str) -> str:
    return url.replace("+psycopg2", "")


def test_the_installations_role_owns_its_database(postgres_url: str) -> None:
    with closing(psycopg2.connect(plain(postgres_url))) as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE probe (id int)")
        cursor.execute("SELECT current_user, usesuper FROM pg_user WHERE usename = current_user")
        assert cursor.fetchone() == ("kici", False)


def test_a_wrong_password_is_refused(postgres_server: EmbeddedPostgres) -> None:
    wrong = plain(postgres_server.url).replace("kici:", "kici:x")
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(wrong)


def test_redis_keeps_every_key_and_writes_every_change(redis_url: str) -> None:
    with closing(redis.Redis.from_url(redis_url)) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_a_copied_database_has_what_its_template_had(databases: Databases) -> None:
    prepared = databases.create()
    with closing(psycopg2.connect(plain(prepared))) as session, session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE probe (id int)")
    copied = databases.create(prepared)
    with closing(psycopg2.connect(plain(copied))) as session, session.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM probe")
        assert cursor.fetchone() == (0,)
    databases.drop(copied)
    databases.drop(prepared)
