"""The jailer's command line: who the microVM's process is and what it may use; pure."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from workers.firecracker.layout import Layout
from workers.firecracker.machine import Size
from workers.firecracker.settings import Programs

PARENT_CGROUP = "kici"
"""Below which every microVM has a cgroup named after its agent."""

PERIOD_MICROSECONDS = 100_000

MOST_OPEN_FILES = 2048
"""The jailer's own default."""


class CgroupVersion(StrEnum):
    """Which kind of cgroups a machine's limits are in."""

    V1 = "1"
    V2 = "2"


def cgroup_version(mount: Path = Path("/sys/fs/cgroup")) -> CgroupVersion:
    """Which kind this machine has; a mixed one keeps its limits in the first kind."""
    is_second = (mount / "cgroup.controllers").is_file()
    return CgroupVersion.V2 if is_second else CgroupVersion.V1


def limits(size: Size, version: CgroupVersion) -> tuple[str, ...]:
    """The limits as `file=value`, by what that kind of cgroup calls them."""
    quota = size.cpu_millis * PERIOD_MICROSECONDS // 1000
    if version is CgroupVersion.V2:
        return (
            f"memory.max={size.memory_limit_bytes}",
            "memory.swap.max=0",
            f"cpu.max={quota} {PERIOD_MICROSECONDS}",
        )
    return (
        f"memory.limit_in_bytes={size.memory_limit_bytes}",
        f"cpu.cfs_period_us={PERIOD_MICROSECONDS}",
        f"cpu.cfs_quota_us={quota}",
    )


def jailer_command(
    programs: Programs, layout: Layout, size: Size, version: CgroupVersion
) -> tuple[str, ...]:
    """What starts the microVM: in a pid namespace of its own, never as a daemon.

    Nothing secret is in it; what is could be read by everyone on the machine.
    """
    cgroups = [part for limit in limits(size, version) for part in ("--cgroup", limit)]
    return (
        str(programs.jailer),
        "--id", layout.agent_id,
        "--exec-file", str(programs.firecracker),
        "--uid", str(programs.uid),
        "--gid", str(programs.gid),
        "--chroot-base-dir", str(layout.base),
        "--new-pid-ns",
        "--cgroup-version", version.value,
        "--parent-cgroup", PARENT_CGROUP,
        *cgroups,
        "--resource-limit", f"no-file={MOST_OPEN_FILES}",
        "--",
        "--config-file", "/config.json",
        "--log-path", "/vmm.log",
        "--level", "Warning",
    )  # fmt: skip


def cgroup_folders(agent_id: str, mount: Path = Path("/sys/fs/cgroup")) -> tuple[Path, ...]:
    """The cgroups that the jailer made for an agent, those that are there."""
    own = Path(PARENT_CGROUP) / agent_id
    if cgroup_version(mount) is CgroupVersion.V2:
        found = [mount / own]
    else:
        # `cpu` is a link to `cpu,cpuacct` on many machines: each folder once.
        found = list({each.resolve(): each / own for each in _controllers(mount)}.values())
    return tuple(each for each in found if each.is_dir())


def _controllers(mount: Path) -> list[Path]:
    try:
        return sorted(each for each in mount.iterdir() if each.is_dir())
    except OSError:
        return []
