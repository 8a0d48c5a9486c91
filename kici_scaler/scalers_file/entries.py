"""The objects a scaler entry is made of; see `models` for how the schema is documented."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kici_scaler.scalers_file.amounts import CapEntry, ResourceAmounts, Strict
from kici_scaler.scalers_file.fields import (
    Cidr,
    Count,
    CountOrNone,
    Cron,
    HostAccessEntry,
    Label,
    LabelSetLabels,
    Name,
    Seconds,
    Text,
    Timezone,
)


class PlatformEntry(Strict):
    """The system agents really run on; anything but linux on x64 gates its label sets."""

    os: Literal["linux", "macos", "windows"]
    """Operating system."""
    arch: Literal["x64", "arm64"]
    """CPU architecture."""


class WarmScheduleEntry(Strict):
    """Another pool size at the times a cron expression names."""

    cron: Cron
    """Minute, hour, day of month, month, day of week. With `*` for the minute it holds while it
    matches (`* 8-17 * * 1-5`); any other begins when it matches and holds until another does."""
    timezone: Timezone = "UTC"
    """Where that time is meant, daylight saving included."""
    size: CountOrNone
    """The size while it holds."""


class WarmPoolEntry(Strict):
    """Idle agents kept ready, for each label set of the scaler."""

    enabled: bool = False
    """Whether the pool is kept at all."""
    size: CountOrNone = 0
    """Agents per label set, for the cluster; 0 drains the pool."""
    idle_timeout_seconds: Seconds = 300.0
    """How long an agent beyond the size stays."""
    schedules: list[WarmScheduleEntry] = Field(default_factory=list, max_length=100)
    """Sizes by time; the one that matched last counts, the later in the list among equals, and
    `size` while none holds."""


class NetworkPolicyEntry(Strict):
    """What agents of the label set may reach, beyond or instead of the public Internet."""

    allowlist: list[Cidr] | None = None
    """Networks that stay reachable although private, or although all is denied."""
    deny_all: bool = False
    """Whether everything but the gateway and the allowlist is closed."""
    host_access: list[HostAccessEntry] | None = None
    """What is reachable on the machine itself: `address`, `address:port`, `cidr:port`, `*:port`
    or a bare port. Replaces the default (name service, orchestrator, storage); an empty list
    closes the machine entirely."""


class SshEntry(Strict):
    """A machine reached by SSH."""

    address: Text
    """Host name or address."""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    """SSH port."""
    user: Text | None = None
    """Whom to log in as; the worker's own user unless given."""
    key_file: Text | None = None
    """Private key on the worker; the worker's SSH agent is asked unless given."""
    host_key: Text | None = None
    """The machine's pinned public key (`ssh-ed25519 AAAA…`); a different one is refused."""
    known_hosts_file: Text | None = None
    """Where the machine's key is looked up when it is not pinned; the worker user's own file
    unless given. Unknown keys are refused."""


class MachineEntry(SshEntry):
    """One machine of a bare-metal scaler's fleet."""

    name: Name | None = None
    """How it is called in status and logs; its address unless given."""
    jump_host: SshEntry | None = None
    """A machine to go through."""
    labels: list[Label] = Field(default_factory=list)
    """Labels that agents on this machine offer besides those of their label set."""
    max_agents: Count | None = None
    """The most agents on this machine, when fewer than the scaler's `maxAgents`."""
    capacity: CapEntry | None = None
    """What may be reserved on it; what the machine says of itself unless given."""
    state_dir: Text | None = None
    """Folder on the machine for agents, their output and the supervisor;
    `~/.local/state/kici-scaler` unless given."""


class TlsEntry(Strict):
    """How a remote container runtime is trusted and how it trusts us."""

    ca_file: Text | None = None
    """Authority that signed the runtime's certificate; the system's unless given."""
    cert_file: Text | None = None
    """Our certificate."""
    key_file: Text | None = None
    """Its private key."""


class LabelSetEntry(Strict):
    """Labels an agent offers, and what to start for them."""

    labels: LabelSetLabels
    """What the agent offers; a job is served when it asks for a subset. Stored lower-case."""
    image: Text | None = None
    """Container image of the agent."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    binary_path: Text | None = None
    """The agent's program on the machine; `builtin:agent` is the reference agent that ships
    with kici-scaler."""
    rootfs_path: Text | None = None
    """Root file system of the microVM."""
    kernel_path: Text | None = None
    """Kernel, instead of the scaler's."""
    vcpu_count: Count | None = None
    """Virtual CPUs, instead of the scaler's."""
    mem_size_mib: Count | None = None
    """Memory in MiB, instead of the scaler's."""
    overlay_drive_size_mib: Count | None = None
    """Writable drive of the microVM in MiB; 2048 unless given."""
    resources: ResourceAmounts | None = None
    """What an agent gets when the job does not say: `{cpus, memory}` for both sides, or
    `{requests, limits}`."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of the agent; values are text."""
    volumes: list[Text] = Field(default_factory=list)
    """Bind mounts, `host path:container path[:ro]`."""
    container_socket: bool = False
    """Whether the runtime's socket is mounted; whoever has it is root on the machine."""
    backpressure_mode: Literal["pause", "drop"] | None = None
    """What the agent does when its log cannot be sent fast enough."""
    network_policy: NetworkPolicyEntry | None = None
    """What the agent may reach."""
