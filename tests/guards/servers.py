"""Servers that the tests of many guards share, since each would start a pair of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kici_scaler.embedded.folder import make_temporary_home
from kici_scaler.embedded.ports import free_port
from kici_scaler.embedded.postgres import STOP as POSTGRES_STOP
from kici_scaler.embedded.postgres import EmbeddedPostgres
from kici_scaler.embedded.redis import STOP as REDIS_STOP
from kici_scaler.embedded.redis import EmbeddedRedis
from tests.support.servers import SharedServers, running


@contextmanager
def shared_servers() -> Iterator[Mapping[str, str]]:
    """The variables that lead one test process after another to a running pair."""
    home = make_temporary_home("kici-guards-")
    shared = SharedServers(home, free_port(), free_port())
    postgres = EmbeddedPostgres(home, shared.postgres_port, durable=False)
    redis = EmbeddedRedis(home, shared.redis_port, durable=False)
    try:
        with running(postgres, POSTGRES_STOP), running(redis, REDIS_STOP):
            postgres.provision()
            yield shared.environment()
    finally:
        shutil.rmtree(home)
