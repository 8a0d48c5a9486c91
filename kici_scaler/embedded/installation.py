"""A whole local installation: servers, schema, configuration and roles, as one context.

Crash table:
    a step of the start fails  every step before it is undone; the data stays
    this process killed        the kernel ends every child; agents go on; the next start on the
                               folder finds the lock free and recovers the servers
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Self

from pydantic import SecretStr

from config.celery_settings import CONTROL_KIND
from config.settings import Settings
from kici_scaler.embedded import configuration
from kici_scaler.embedded.child import Child, Listener
from kici_scaler.embedded.credentials import Credentials, admit_keys, make_credentials
from kici_scaler.embedded.errors import NotRunning
from kici_scaler.embedded.folder import DataFolder, claimed, make_temporary_home
from kici_scaler.embedded.listeners import LogFiles, Several
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.ports import PortBook, reached_at
from kici_scaler.embedded.profile import LocalProfile, announce, own_start, withdraw
from kici_scaler.embedded.programs import BEAT, FLOWER, GATEWAY
from kici_scaler.embedded.restarts import RestartPolicy
from kici_scaler.embedded.roles import RoleContext, role_children
from kici_scaler.embedded.servers import Servers, check_servers, choose_servers
from kici_scaler.embedded.supervisor import Supervisor
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import migrate
from kici_scaler.store.engine import make_engine

RolesOf = Callable[[RoleContext], Sequence[Child]]


class Installation:
    """A running installation; everything it started ends with the context.

    Args:
        plan: what to start.
        home: data folder; a temporary one, deleted at the end, when None.
        listener: also hears lines and events, besides the log files in the data folder.
        roles_of: makes the children of the roles; tests put stand-ins here.
        restarts: when children that ended are started again.

    Example:
        >>> with Installation(Plan(scaler_file=path)) as installation:
        ...     installation.kill("gateway")
        ...     installation.profile.gateway_url
    """

    def __init__(
        self,
        plan: Plan | None = None,
        home: Path | None = None,
        *,
        listener: Listener | None = None,
        roles_of: RolesOf = role_children,
        restarts: RestartPolicy | None = None,
    ) -> None:
        self.plan = plan or Plan()
        self.warnings: tuple[str, ...] = ()
        self._home = home
        self._listeners = Several([listener] if listener else [])
        self._roles_of = roles_of
        self._supervisor = Supervisor(listener=self._listeners, policy=restarts)
        self._profile: LocalProfile | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._start(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_details: object) -> None:
        self._undo.close()

    def run(self, when_ready: Callable[[Self], None]) -> None:
        """Start, tell, stay until SIGINT or SIGTERM, stop.

        Raises:
            KiciError: the start failed; nothing is left running.
            StartInterrupted: the signal came during the start; nothing is left running.
        """
        with self._supervisor.stops_on_signals(), self:
            when_ready(self)
            self._supervisor.wait()

    @property
    def profile(self) -> LocalProfile:
        """Where everything is.

        Raises:
            NotRunning: outside the context.
        """
        if self._profile is None:
            raise NotRunning
        return self._profile

    @property
    def supervisor(self) -> Supervisor:
        """States and process ids of the children by name: `postgres`, `redis`, roles."""
        return self._supervisor

    def pids(self) -> dict[str, int]:
        """Process ids of the children that run now."""
        found = {name: self._supervisor.pid(name) for name in self._supervisor.states()}
        return {name: pid for name, pid in found.items() if pid is not None}

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Do to a child what a fault would; the supervisor starts it again when it ends."""
        self._supervisor.send(name, number)

    def log(self, name: str) -> str:
        """What a child wrote so far (its last file)."""
        path = DataFolder(self.profile.data_dir).logs / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def _start(self, undo: ExitStack) -> None:
        plan = self.plan
        configuration.check_file(plan.scaler_file, plan.scaler_directory)
        home = self._home or undo.enter_context(_temporary_home())
        self.warnings = check_servers(plan, home)
        folder = undo.enter_context(claimed(home))
        ports = PortBook(folder.home / "ports.json")
        gateway_port, flower_port = _take_ports(plan, ports)
        files = undo.enter_context(closing(LogFiles(folder.logs)))
        undo.enter_context(self._listeners.joined_by(files))
        undo.enter_context(self._supervisor)
        servers = choose_servers(plan, folder.home, ports)
        self._supervisor.start(servers.children)
        credentials = make_credentials(folder.home, Settings())
        backends = self._prepare_database(servers.database_url, credentials)
        roles = _roles(plan, backends)
        self._profile = _profile(
            plan, folder, servers, credentials, roles, gateway_port, flower_port
        )
        self._supervisor.start(self._roles_of(self._context(folder, roles, flower_port)))
        if plan.announced:
            announce(self._profile)
            undo.callback(withdraw, folder.home)

    def _prepare_database(self, url: str, credentials: Credentials) -> tuple[str, ...]:
        """Schema, keys and configuration; the backend types that it needs."""
        migrate.upgrade(url)
        engine = make_engine(url, application="up", pool_size=1)
        try:
            runtime = Runtime(engine, f"up@{credentials.installation_id}")
            admit_keys(runtime, credentials)
            activated = configuration.activate(
                runtime, self.plan.scaler_file, self.plan.scaler_directory
            )
        finally:
            engine.dispose()
        self.warnings += activated.warnings
        return activated.backends

    def _context(self, folder: DataFolder, roles: tuple[str, ...], flower_port: int) -> RoleContext:
        machine_id = Settings().machine_id
        return RoleContext(
            folder=folder,
            roles=roles,
            machine_id=machine_id,
            host=self.plan.host,
            flower_port=flower_port,
            flower_password=self.profile.flower_password_path.read_text().strip(),
            environment={
                **self.profile.environment(),
                "KICI_MACHINE_ID": machine_id,
                **self._scaler_file(),
                **self.plan.environment,
            },
            concurrency=self.plan.concurrency,
        )

    def _scaler_file(self) -> dict[str, str]:
        """Where a later reload finds the configuration."""
        places = {
            "KICI_SCALER_CONFIG_PATH": self.plan.scaler_file,
            "KICI_SCALER_CONFIG_DIR": self.plan.scaler_directory,
        }
        return {name: str(path.absolute()) for name, path in places.items() if path}


@contextmanager
def _temporary_home() -> Iterator[Path]:
    home = make_temporary_home("kici-scaler-")
    try:
        yield home
    finally:
        shutil.rmtree(home)


def _roles(plan: Plan, backends: Sequence[str]) -> tuple[str, ...]:
    everything = (CONTROL_KIND, *backends, BEAT, GATEWAY, FLOWER)
    return everything if plan.roles is None else plan.roles


def _take_ports(plan: Plan, ports: PortBook) -> tuple[int, int]:
    wanted = {
        GATEWAY: (plan.gateway_port, "--port"),
        FLOWER: (plan.flower_port, "--flower-port"),
    }
    taken = []
    for role, (port, option) in wanted.items():
        if port and (plan.roles is None or role in plan.roles):
            ports.take_exactly(role, port, plan.host, option)
        taken.append(port or ports.take(role, plan.host))
    return taken[0], taken[1]


def _profile(
    plan: Plan,
    folder: DataFolder,
    servers: Servers,
    credentials: Credentials,
    roles: Sequence[str],
    gateway_port: int,
    flower_port: int,
) -> LocalProfile:
    address = reached_at(plan.host)
    return LocalProfile(
        data_dir=folder.home,
        pid=os.getpid(),
        started=own_start(),
        host=plan.host,
        gateway_port=gateway_port,
        gateway_url=f"http://{address}:{gateway_port}" if GATEWAY in roles else None,
        flower_url=f"http://{address}:{flower_port}" if FLOWER in roles else None,
        api_key_path=credentials.api_key,
        dispatcher_key_path=credentials.dispatcher_key,
        flower_password_path=credentials.flower_password,
        seal_keys_path=credentials.seal_keys,
        database_url=SecretStr(servers.database_url),
        redis_url=SecretStr(servers.redis_url),
        installation_id=credentials.installation_id,
    )
