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
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, Self

from pydantic import SecretStr

from config.celery_settings import CONTROL_KIND
from config.settings import Settings
from kici_scaler.embedded import configuration
from kici_scaler.embedded.child import Child, Listener
from kici_scaler.embedded.errors import NotRunning
from kici_scaler.embedded.folder import DataFolder, claimed, make_temporary_home
from kici_scaler.embedded.listeners import LogFiles, Several
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.ports import PortBook, reached_at
from kici_scaler.embedded.profile import LocalProfile, announce, own_start, withdraw
from kici_scaler.embedded.programs import BEAT, FLOWER, GATEWAY
from kici_scaler.embedded.roles import RoleContext, role_children
from kici_scaler.embedded.secrets import read_or_make_secret, secret_path
from kici_scaler.embedded.servers import Servers, check_servers, choose_servers
from kici_scaler.embedded.supervisor import Supervisor
from kici_scaler.sealing import ensure_keys
from kici_scaler.store import migrate

API_KEY: Final = "api-key"
FLOWER_PASSWORD: Final = "flower-password"
SEAL_KEYS: Final = "seal-keys.json"

RolesOf = Callable[[RoleContext], Sequence[Child]]


class Installation:
    """A running installation; everything it started ends with the context.

    Args:
        plan: what to start.
        home: data folder; a temporary one, deleted at the end, when None.
        listener: also hears lines and events, besides the log files in the data folder.
        roles_of: makes the children of the roles; tests put stand-ins here.

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
    ) -> None:
        self.plan = plan or Plan()
        self.warnings: tuple[str, ...] = ()
        self._home = home
        self._listeners = Several([listener] if listener else [])
        self._roles_of = roles_of
        self._supervisor = Supervisor(listener=self._listeners)
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
        migrate.upgrade(servers.database_url)
        activated = configuration.activate(
            servers.database_url, plan.scaler_file, plan.scaler_directory
        )
        self.warnings += activated.warnings
        roles = _roles(plan, activated.backends)
        self._profile = _profile(plan, folder, servers, roles, gateway_port, flower_port)
        self._supervisor.start(self._roles_of(self._context(folder, roles, flower_port)))
        if plan.announced:
            announce(self._profile)
            undo.callback(withdraw, folder.home)

    def _context(self, folder: DataFolder, roles: tuple[str, ...], flower_port: int) -> RoleContext:
        machine_id = Settings().machine_id
        return RoleContext(
            folder=folder,
            roles=roles,
            machine_id=machine_id,
            host=self.plan.host,
            flower_port=flower_port,
            flower_password=read_or_make_secret(folder.home, FLOWER_PASSWORD),
            environment={
                **self.profile.environment(),
                "KICI_MACHINE_ID": machine_id,
                **self.plan.environment,
            },
            concurrency=self.plan.concurrency,
        )


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
    roles: Sequence[str],
    gateway_port: int,
    flower_port: int,
) -> LocalProfile:
    home = folder.home
    address = reached_at(plan.host)
    read_or_make_secret(home, API_KEY)
    given_keys = Settings().seal_keys_path
    if given_keys is None:
        ensure_keys(secret_path(home, SEAL_KEYS))
    return LocalProfile(
        data_dir=home,
        pid=os.getpid(),
        started=own_start(),
        host=plan.host,
        gateway_port=gateway_port,
        gateway_url=f"http://{address}:{gateway_port}" if GATEWAY in roles else None,
        flower_url=f"http://{address}:{flower_port}" if FLOWER in roles else None,
        api_key_path=secret_path(home, API_KEY),
        flower_password_path=secret_path(home, FLOWER_PASSWORD),
        seal_keys_path=given_keys or secret_path(home, SEAL_KEYS),
        database_url=SecretStr(servers.database_url),
        redis_url=SecretStr(servers.redis_url),
        installation_id=_installation_id(home),
    )


def _installation_id(home: Path) -> str:
    """The operator's, or one made for this folder, which names what it makes on machines."""
    given = Settings().installation_id
    if given != Settings.model_fields["installation_id"].default:
        return given
    path = home / "installation-id"
    if not path.exists():
        path.write_text(f"local-{uuid.uuid4().hex[:12]}\n")
    return path.read_text().strip()
