"""A whole installation whose every part can be killed, frozen or cut off."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, text
from sqlalchemy.engine import make_url

from kici_scaler.embedded import programs
from kici_scaler.embedded.child import Child
from kici_scaler.embedded.installation import Installation
from kici_scaler.embedded.plan import Plan
from kici_scaler.embedded.ports import free_port
from kici_scaler.embedded.restarts import RestartPolicy
from kici_scaler.embedded.roles import RoleContext, by_ready_file, worker_child
from kici_scaler.store import section, settings
from kici_scaler.store.engine import make_engine, transaction
from tests.faults import leaks
from tests.support.tcp_proxy import TcpProxy

SCALERS: Final = """
version: 1
globalMaxAgents: {most}
scalers:
  - name: local
    type: bare-metal
    maxAgents: {most}
    maxConcurrentSpawns: 4
    labelSets:
      - labels: [linux, faults]
        binaryPath: builtin:agent
"""

QUICK: Final[Mapping[str, float]] = {
    "lease_seconds": 6,
    "hint_after_seconds": 1,
    "gateway_stale_seconds": 8,
    "machine_stale_seconds": 12,
    "flap_grace_seconds": 25,
    "stranded_timeout_seconds": 60,
    "offer_timeout_seconds": 15,
    "spawn_timeout_seconds": 60,
    "boot_floor_seconds": 45,
    "backoff_base_seconds": 1,
    "backoff_max_seconds": 3,
    "settle_seconds": 1,
}
"""Windows short enough that a run sees the end of each; shorter than any real cluster's."""
RECONNECT_MAX_MILLIS: Final = 4_000
"""As much shorter than an agent's own as the flap grace is, which has to cover several pauses."""


SOON: Final = RestartPolicy(first=0.2, longest=0.5)
"""Whatever dies here dies often; nobody waits for it to prove itself stable."""


@dataclass(frozen=True, slots=True)
class Cast:
    """How many of each role there are."""

    control: int = 1
    workers: int = 1
    gateways: int = 1
    beats: int = 1
    mutex: bool = True


@dataclass
class Stage:
    """The installation under test, and the handles to break it.

    Agents and dispatchers reach the gateways through `front`, the roles reach their
    servers through `postgres` and `redis`; the tests themselves use the servers directly.
    """

    servers: Installation
    roles: Installation
    postgres: TcpProxy
    redis: TcpProxy
    front: TcpProxy
    gateways_postgres: TcpProxy
    """The database as gateways reach it, behind `postgres`: cut, only they lose it."""
    gateway_ports: Sequence[int]
    engine: Engine = field(repr=False)
    checkpoints: Path
    witness: Path

    @property
    def names(self) -> tuple[str, ...]:
        """The roles' children, by name."""
        return tuple(self.roles.supervisor.states())

    @property
    def installation_id(self) -> str:
        """What every artifact of this stage carries."""
        return self.roles.profile.installation_id

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal a role or a server (`postgres`, `redis`) by its name."""
        owner = self.servers if name in self.servers.supervisor.states() else self.roles
        owner.kill(name, number)

    def arm(self, checkpoint: str, action: str = "kill") -> None:
        """Let the first process that reaches the checkpoint die (or `stop`)."""
        path = self.checkpoints / checkpoint
        for used in self._used(checkpoint):
            used.unlink()
        draft = path.with_suffix(".draft")
        draft.write_text(action)
        draft.rename(path)

    def is_armed(self, checkpoint: str) -> bool:
        """Whether nobody has reached it since it was armed."""
        return (self.checkpoints / checkpoint).exists()

    def frozen_at(self, checkpoint: str) -> tuple[int, ...]:
        """Process ids that used the checkpoint up since it was armed last."""
        return tuple(int(path.name.rpartition("-")[2]) for path in self._used(checkpoint))

    def _used(self, checkpoint: str) -> list[Path]:
        return list(self.checkpoints.glob(f"{checkpoint}.used-*"))

    def rows(self, statement: str, **values: object) -> list[Mapping[str, object]]:
        """Read rows past the proxies."""
        with self.engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(text(statement), values)]

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Hold the admission lock, as a holder that takes its time."""
        with transaction(self.engine) as connection:
            section.enter(connection)
            yield

    def show(self, index: int) -> None:
        """Let the front lead to another gateway from the next connection on."""
        self.front.target = ("127.0.0.1", self.gateway_ports[index])


@contextmanager
def stage(
    folder: Path,
    cast: Cast | None = None,
    *,
    most_agents: int = 4,
    windows: Mapping[str, float] = QUICK,
    environment: Mapping[str, str] | None = None,
    scalers: str | None = None,
) -> Iterator[Stage]:
    """Set everything up on embedded servers; only the roles' logs stay in the folder.

    A run that ends well must also have written no secret anywhere: not in a log, a row, a task or
    the arguments of a process.
    """
    cast = cast or Cast()
    for name in ("checkpoints", "witness"):
        (folder / name).mkdir()
    scaler_file = folder / "scalers.yaml"
    scaler_file.write_text(scalers or SCALERS.format(most=most_agents))
    with ExitStack() as stack:
        servers = stack.enter_context(
            Installation(Plan(roles=(), scaler_file=scaler_file), restarts=SOON)
        )
        database_url = servers.profile.database_url.get_secret_value()
        engine = make_engine(database_url, application="fault tests")
        stack.callback(engine.dispose)
        _set_windows(engine, windows)
        postgres = stack.enter_context(_proxy(database_url))
        redis = stack.enter_context(_proxy(servers.profile.redis_url.get_secret_value()))
        behind = stack.enter_context(TcpProxy((postgres.host, postgres.port)))
        ports = [free_port() for _ in range(cast.gateways)]
        front = stack.enter_context(TcpProxy(("127.0.0.1", ports[0])))
        plan = Plan(
            roles=("control", "bare-metal", "beat", "gateway"),
            database_url=_through(database_url, postgres),
            redis_url=_through(servers.profile.redis_url.get_secret_value(), redis),
            environment={
                "KICI_CHECKPOINT_DIR": str(folder / "checkpoints"),
                "KICI_ORCHESTRATOR_URL": f"ws://127.0.0.1:{front.port}/v1/agents",
                "KICI_RESERVATION_MUTEX": str(cast.mutex).lower(),
                "KICI_AGENT_ENV_KICI_AGENT_RECONNECT_MAX": str(RECONNECT_MAX_MILLIS),
                **(environment or {}),
            },
        )
        roles = stack.enter_context(
            Installation(
                plan,
                folder / "roles",
                roles_of=lambda context: _children(
                    context, cast, ports, _through(database_url, behind)
                ),
                restarts=SOON,
            )
        )
        secrets = leaks.secrets_of(roles.profile)
        yield Stage(
            servers,
            roles,
            postgres,
            redis,
            front,
            behind,
            ports,
            engine,
            folder / "checkpoints",
            folder / "witness",
        )
        found = leaks.everywhere(roles.profile, servers.profile, engine, secrets)
        assert not found, "\n".join(found)


def _children(
    context: RoleContext, cast: Cast, ports: Sequence[int], gateways_database: str
) -> list[Child]:
    """Every role as often as the cast says, each under a name of its own."""
    children: list[Child] = []
    for kind, count in (("control", cast.control), ("bare-metal", cast.workers)):
        for number in range(count):
            children.append(worker_child(context, kind, f"{kind}-{number}"))
    for number, port in enumerate(ports):
        own = {"KICI_PORT": str(port), "KICI_DATABASE_URL": gateways_database}
        at = replace(context, environment={**context.environment, **own})
        children.append(by_ready_file(at, f"gateway-{number}", programs.gateway_program()))
    for number in range(cast.beats):
        home = context.folder.run / f"beat-{number}"
        home.mkdir(exist_ok=True)
        children.append(by_ready_file(context, f"beat-{number}", programs.beat_program(home)))
    return children


def _set_windows(engine: Engine, windows: Mapping[str, float]) -> None:
    with transaction(engine) as connection:
        for key, value in windows.items():
            settings.put(connection, key, value, changed_by="fault tests")


def _proxy(url: str) -> TcpProxy:
    parsed = make_url(url)
    assert parsed.host is not None
    assert parsed.port is not None
    return TcpProxy((parsed.host, parsed.port))


def _through(url: str, proxy: TcpProxy) -> str:
    parsed = make_url(url).set(host=proxy.host, port=proxy.port)
    return parsed.render_as_string(hide_password=False)


def as_json(value: object) -> str:
    """For reports and failure messages."""
    return json.dumps(value, default=str, indent=1)
