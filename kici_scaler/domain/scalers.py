"""What an operator configured, as plain data: scalers, label sets, caps, pools.

The scaler file is validated elsewhere and turned into these; every decision
reads these and nothing else, so a decision needs no file and no framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class BackendType(StrEnum):
    """How a scaler makes compute."""

    CONTAINER = "container"
    BARE_METAL = "bare-metal"
    FIRECRACKER = "firecracker"
    EVENT = "event"

    @property
    def is_local(self) -> bool:
        """Whether the compute is pinned to a machine (everything but `event`)."""
        return self is not BackendType.EVENT


class Role(StrEnum):
    """What kind of work an agent may be asked for besides running jobs."""

    BUILDER = "builder"
    INIT_RUNNER = "init-runner"


class OperatingSystem(StrEnum):
    """The operating systems an agent may run on."""

    LINUX = "linux"
    MACOS = "macos"
    WINDOWS = "windows"


class Architecture(StrEnum):
    """The CPU architectures an agent may run on."""

    X64 = "x64"
    ARM64 = "arm64"


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system and CPU architecture, declared or discovered."""

    os: OperatingSystem
    arch: Architecture


@dataclass(frozen=True, slots=True)
class Amount:
    """CPUs in thousandths and memory in bytes; None where that side is not declared."""

    cpu_millis: int | None = None
    memory_bytes: int | None = None

    @property
    def is_declared(self) -> bool:
        """Whether either side is declared."""
        return self.cpu_millis is not None or self.memory_bytes is not None


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Resources:
    """Declared requests and limits, before mirroring and the cascade."""

    requests: Amount = NOTHING
    limits: Amount = NOTHING

    @property
    def is_declared(self) -> bool:
        """Whether anything at all is declared."""
        return self.requests.is_declared or self.limits.is_declared


@dataclass(frozen=True, slots=True)
class Cap:
    """The most of each dimension that may be reserved; None is unlimited."""

    cpu_millis: int | None = None
    memory_bytes: int | None = None


UNCAPPED = Cap()


@dataclass(frozen=True, slots=True)
class WarmSchedule:
    """A pool size for the moments a cron expression selects in a timezone."""

    cron: str
    timezone: str
    size: int


@dataclass(frozen=True, slots=True)
class WarmPool:
    """How many idle agents a label set keeps ready, and for how long surplus ones idle."""

    size: int
    idle_timeout_seconds: float = 300.0
    schedules: tuple[WarmSchedule, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSet:
    """Labels an agent of a scaler offers, and what to start for them.

    `labels` are as declared (canonical, in written order); `gate` holds the taints that a
    job must ask for by name. `options` carries what only the backend reads (image,
    binary path, volumes, environment, network policy ...), by its key in the scaler file.
    """

    index: int
    labels: tuple[str, ...]
    gate: frozenset[str] = frozenset()
    resources: Resources = field(default_factory=Resources)
    warm_pool: WarmPool | None = None
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def text(self, key: str) -> str | None:
        """The option as text, or None when it is absent."""
        value = self.options.get(key)
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class FleetMachine:
    """A machine reached by SSH that a scaler lists, as decisions see it.

    `labels` are canonical; `max_agents` bounds that scaler's agents on it; a side of
    `capacity` that is None is what the machine says of itself.
    """

    name: str
    labels: frozenset[str] = frozenset()
    max_agents: int | None = None
    capacity: Cap = UNCAPPED


@dataclass(frozen=True, slots=True)
class Scaler:
    """One entry of the scaler file."""

    name: str
    type: BackendType
    max_agents: int
    label_sets: tuple[LabelSet, ...]
    max_concurrent_spawns: int = 8
    resource_cap: Cap = UNCAPPED
    machine_pool: str | None = None
    platform: Platform | None = None
    roles: frozenset[Role] = frozenset(Role)
    orchestrator_url: str | None = None
    provisioning_targets: tuple[str, ...] = ()
    claim_ttl_seconds: int = 300
    agent_token_ttl_seconds: int = 600
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    machines: tuple[FleetMachine, ...] = ()
    """Where its agents run, over SSH; empty: on the workers' own hosts (or nowhere, `event`)."""

    def machine(self, name: str) -> FleetMachine | None:
        """The machine of that name in its fleet, or None."""
        return next((each for each in self.machines if each.name == name), None)

    def most_agents_on(self, machine: str | None) -> int:
        """How many of its agents one machine (None: the cluster, for `event`) takes."""
        listed = self.machine(machine) if machine is not None and self.machines else None
        if listed is None or listed.max_agents is None:
            return self.max_agents
        return min(self.max_agents, listed.max_agents)


@dataclass(frozen=True, slots=True)
class MachinePool:
    """A budget of one machine that several scalers (and installations) share."""

    name: str
    cap: Cap


@dataclass(frozen=True, slots=True)
class Cluster:
    """A whole validated configuration; one revision of it decides at a time."""

    scalers: tuple[Scaler, ...] = ()
    global_max_agents: int = 50
    global_resource_cap: Cap = UNCAPPED
    machine_pools: tuple[MachinePool, ...] = ()
    default_resources: Resources = field(default_factory=Resources)
    firecracker: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def scaler(self, name: str) -> Scaler | None:
        """The scaler of that name, or None."""
        return next((each for each in self.scalers if each.name == name), None)

    def pool(self, name: str) -> MachinePool | None:
        """The machine pool of that name, or None."""
        return next((each for each in self.machine_pools if each.name == name), None)
