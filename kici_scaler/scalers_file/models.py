"""The schema of the scaler file: every key, its kind, its default, and what it is for.

Strict in every object: an unknown key is an error. The docstring under each field is its
description in the JSON Schema and in the configuration reference.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from kici_scaler.domain.scalers import Role
from kici_scaler.scalers_file.amounts import CapEntry, ResourceAmounts, Strict
from kici_scaler.scalers_file.entries import (
    LabelSetEntry,
    MachineEntry,
    PlatformEntry,
    TlsEntry,
    WarmPoolEntry,
)
from kici_scaler.scalers_file.fields import Count, Label, Name, Target, Text, Url, Version


class MachinePoolEntry(Strict):
    """A budget of one machine that several scalers, and installations, share."""

    name: Name
    """How scalers refer to it; unique."""
    cap: CapEntry
    """What all its sharers together may reserve on one machine; the smallest declared counts."""


class DefaultsEntry(Strict):
    """What applies where neither the job nor the label set says otherwise."""

    resources: ResourceAmounts | None = None
    """The last step of the cascade: each field from the job, else the label set, else here."""


class FirecrackerEntry(Strict):
    """The host network that all firecracker scalers of a machine share."""

    cidr: str = "10.0.0.0/24"
    """The network that microVMs take their addresses from."""
    bridge_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")] = "kici-br0"
    """The bridge they are attached to; at most 15 characters."""
    gateway: str | None = None
    """The bridge's own address; the first of `cidr` unless given."""
    netmask: str | None = None
    """The mask guests are told; that of `cidr` unless given."""
    table: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "kici"
    """The nftables table that holds the rules."""
    auto_provision_host: bool = True
    """Whether a worker prepares the bridge and its rules itself when it starts."""


RoleName = Literal["builder", "init-runner", "all"]


def _all_or_listed(roles: list[RoleName]) -> list[str]:
    """`all` swallows the others; the rest in a stable order, each once."""
    return ["all"] if "all" in roles else [role.value for role in Role if role.value in roles]


class ScalerEntry(Strict):
    """One scaler."""

    name: Name
    """Unique; agents offer it as `kici:scaler:<name>`."""
    type: Literal["container", "bare-metal", "firecracker", "event"]
    """How it makes compute. Cannot change later: use a new name."""
    max_agents: Count
    """The most agents at once: on each machine, or in the cluster for `event`."""
    max_concurrent_spawns: Count = 8
    """The most agents being started at once: on each machine, or in the cluster for `event`."""
    label_sets: list[LabelSetEntry] = Field(min_length=1)
    """What it serves."""
    mandatory_labels: list[Label] = Field(default_factory=list)
    """Labels a job must ask for by name; every label set must offer them."""
    platform: PlatformEntry | None = None
    """Where agents really run; otherwise what the machine says, and linux for what is not
    bare-metal."""
    roles: Annotated[list[RoleName], AfterValidator(_all_or_listed)] = Field(default=["all"])
    """Work besides jobs that its agents may be asked for; `[]` is jobs only."""
    warm_pool: WarmPoolEntry | None = None
    """Agents kept ready before a job asks; needs declared resources."""
    resource_cap: CapEntry | None = None
    """What its agents together may reserve: on each machine, or in the cluster for `event`."""
    machine_pool: Text | None = None
    """The machine pool it draws from."""
    orchestrator_url: Url | None = None
    """Where its agents connect, when not where all others do."""
    host: Text | None = None
    """Address of a remote container runtime (`tcp://…`, `ssh://…`)."""
    tls: TlsEntry | None = None
    """Certificates for `host`."""
    socket_path: Text | None = None
    """Socket of the container runtime; the usual places are tried unless given."""
    runtime: Literal["docker", "podman", "auto"] = "auto"
    """Which runtime to look for."""
    extra_hosts: list[Text] = Field(default_factory=list)
    """Names the containers know, `name:address`."""
    network_isolation: bool = True
    """Whether agents are kept from private networks, the machine and each other."""
    pull_images_ahead: bool = False
    """Whether machines pull the images of its label sets when they get ready for it, instead of
    when an agent first needs one."""
    enforce_cgroups: bool = False
    """Whether limits are enforced on processes (Linux)."""
    machines: list[MachineEntry] | None = Field(default=None, min_length=1)
    """Where agents run, over SSH; the worker's own machine unless given."""
    firecracker_path: Text | None = None
    """The firecracker program."""
    jailer_path: Text | None = None
    """The jailer program."""
    kernel_path: Text | None = None
    """Kernel of the microVMs."""
    uid: Annotated[int, Field(ge=0, le=2**32 - 2)] | None = None
    """User the microVM process runs as."""
    gid: Annotated[int, Field(ge=0, le=2**32 - 2)] | None = None
    """Group the microVM process runs as."""
    chroot_base_dir: Text = "/srv/jailer"
    """Where the jailer puts its folders."""
    vcpu_count: Count = 2
    """Virtual CPUs where neither the job nor the label set says."""
    mem_size_mib: Count = 512
    """Memory in MiB where neither the job nor the label set says."""
    require_sudo: bool = False
    """Whether privileged commands go through `sudo -n`."""
    provisioning_targets: list[Target] | None = None
    """Who is asked for machines: `https://…` (a signed webhook) or `organisation/workflow`."""
    claim_ttl_seconds: Count = 300
    """How long a provisioned machine may take to redeem its code."""
    agent_token_ttl_seconds: Count = 600
    """How long the token it gets for the code is good for registering."""


class ScalersFile(Strict):
    """A scaler file, drop-ins included."""

    version: Version
    """Of this format."""
    global_max_agents: Count = 50
    """The most agents of all scalers in the cluster."""
    global_resource_cap: CapEntry | None = None
    """What all agents of the cluster together may reserve."""
    defaults: DefaultsEntry | None = None
    """What applies where nothing else is said."""
    machine_pools: list[MachinePoolEntry] = Field(default_factory=list)
    """Budgets that scalers on one machine share."""
    firecracker: FirecrackerEntry = Field(default_factory=FirecrackerEntry)
    """The network of all firecracker scalers."""
    scalers: list[ScalerEntry]
    """The scalers; the order breaks ties between equally specific label sets."""


class DropIn(BaseModel):
    """A file of the drop-in folder: its scalers are appended in name order of the files."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="ignore")

    scalers: list[ScalerEntry] | None = None
    """Further scalers, as in the main file."""
