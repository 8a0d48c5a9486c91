"""What a runtime says of containers and images, read into plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

_UNDER_WAY = frozenset({"running", "paused", "restarting", "stopping"})
_UNSTARTED = frozenset({"created", "configured", "initialized"})


@dataclass(frozen=True, slots=True)
class Seen:
    """One container as it is now."""

    id: str
    name: str
    marks: Mapping[str, str]
    status: str
    pid: int = 0
    exit_code: int = 0
    error: str = ""
    is_out_of_memory: bool = False
    """The runtime says that a process in it was killed for passing the memory limit."""
    memory_bytes: int = 0
    """Its memory limit; 0 is none."""
    user: str = ""
    addresses: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Its IPv4 addresses by network; only while it runs."""

    @property
    def is_running(self) -> bool:
        """Whether anything of it may run."""
        return self.status in _UNDER_WAY

    @property
    def is_unstarted(self) -> bool:
        """Whether it was made and never ran."""
        return self.status in _UNSTARTED and not self.error

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Seen:
        """The container in the answer to an inspection."""
        state, config = said["State"], said.get("Config") or {}
        networks = (said.get("NetworkSettings") or {}).get("Networks") or {}
        return cls(
            id=said["Id"],
            name=str(said.get("Name", "")).removeprefix("/"),
            marks=config.get("Labels") or {},
            status=str(state.get("Status", "")),
            pid=int(state.get("Pid") or 0),
            exit_code=int(state.get("ExitCode") or 0),
            error=str(state.get("Error") or ""),
            is_out_of_memory=state.get("OOMKilled") is True,
            memory_bytes=int((said.get("HostConfig") or {}).get("Memory") or 0),
            user=str(config.get("User") or ""),
            addresses={
                name: each["IPAddress"] for name, each in networks.items() if each.get("IPAddress")
            },
        )


@dataclass(frozen=True, slots=True)
class Listed:
    """One container of a list."""

    id: str
    name: str
    marks: Mapping[str, str]
    is_running: bool
    created_at: datetime
    """In UTC, by the runtime's clock."""
    addresses: Mapping[str, str]

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Listed:
        """The container in an entry of a list."""
        networks = (said.get("NetworkSettings") or {}).get("Networks") or {}
        return cls(
            id=said["Id"],
            name=str((said.get("Names") or [""])[0]).removeprefix("/"),
            marks=said.get("Labels") or {},
            is_running=str(said.get("State", "")).lower() in _UNDER_WAY,
            created_at=datetime.fromtimestamp(int(said["Created"]), UTC),
            addresses={
                name: each["IPAddress"] for name, each in networks.items() if each.get("IPAddress")
            },
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """What a runtime is."""

    name: str
    """`docker` or `podman`, by its own word."""
    version: str
    api_version: str
    cpus: int
    log_driver: str
    is_rootless: bool

    @property
    def is_podman(self) -> bool:
        """Whether it is Podman behind Docker's interface, with habits of its own."""
        return self.name == "podman"

    @classmethod
    def of(cls, version: Mapping[str, Any], info: Mapping[str, Any]) -> Facts:
        """The facts in the answers to `version` and `info`."""
        parts = [str(each.get("Name", "")) for each in version.get("Components") or ()]
        options = [str(each) for each in info.get("SecurityOptions") or ()]
        return cls(
            name="podman" if any("Podman" in each for each in parts) else "docker",
            version=str(version.get("Version", "")),
            api_version=str(version["ApiVersion"]),
            cpus=int(info.get("NCPU") or 0),
            log_driver=str(info.get("LoggingDriver") or ""),
            is_rootless=any("rootless" in each for each in options),
        )
