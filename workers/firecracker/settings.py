"""What a scaler's options say about its microVMs, read once and typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kici_scaler.domain.guest_addresses import GuestNetwork
from kici_scaler.domain.scalers import LabelSet
from kici_scaler.scalers_file.firecracker import NETWORK_OPTION
from workers.errors import Permanent

DEFAULT_CHROOT_BASE = "/srv/jailer"
DEFAULT_OVERLAY_MIB = 2048
DEFAULT_VCPUS = 2
DEFAULT_MEMORY_MIB = 512
DEFAULT_NETWORK = GuestNetwork("10.0.0.0/24", "10.0.0.1", "255.255.255.0")


@dataclass(frozen=True, slots=True)
class Bridge:
    """The bridge of a machine's microVMs, its network and the table of its baseline rules."""

    name: str = "kici-br0"
    network: GuestNetwork = DEFAULT_NETWORK
    table: str = "kici"
    provisions_itself: bool = True

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Bridge:
        """The bridge in a scaler's options; the defaults where they say nothing."""
        said = options.get(NETWORK_OPTION)
        if not isinstance(said, Mapping):
            return cls()
        network = GuestNetwork(str(said["cidr"]), str(said["gateway"]), str(said["netmask"]))
        return cls(
            str(said["bridgeName"]),
            network,
            str(said["table"]),
            said.get("autoProvisionHost") is not False,
        )


@dataclass(frozen=True, slots=True)
class Programs:
    """What a scaler runs its microVMs with, and as whom."""

    firecracker: Path
    jailer: Path
    uid: int
    gid: int
    chroot_base: Path

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Programs:
        """The programs in a scaler's options.

        Raises:
            Permanent: one that every scaler of this type needs is not named.
        """
        for key in ("firecrackerPath", "jailerPath", "uid", "gid"):
            if options.get(key) is None:
                raise Permanent(f"the scaler names no `{key}`", hint=f"set `{key}` on the scaler")
        return cls(
            Path(str(options["firecrackerPath"])),
            Path(str(options["jailerPath"])),
            int(options["uid"]),
            int(options["gid"]),
            Path(str(options.get("chrootBaseDir") or DEFAULT_CHROOT_BASE)),
        )


@dataclass(frozen=True, slots=True)
class Images:
    """What a microVM boots: a kernel, a root that it may only read, room to write."""

    kernel: Path
    rootfs: Path
    overlay_mib: int

    @classmethod
    def of(cls, options: Mapping[str, Any], label_set: LabelSet) -> Images:
        """The label set's own where it names them, else the scaler's.

        Raises:
            Permanent: there is no kernel or no root.
        """
        kernel = label_set.text("kernelPath") or options.get("kernelPath")
        rootfs = label_set.text("rootfsPath")
        for key, value in (("kernelPath", kernel), ("rootfsPath", rootfs)):
            if not value:
                raise Permanent(
                    f"label set {label_set.index} names no `{key}`",
                    hint=f"set `{key}` on the label set",
                )
        overlay = label_set.options.get("overlayDriveSizeMib")
        size = overlay if isinstance(overlay, int) and overlay > 0 else DEFAULT_OVERLAY_MIB
        return cls(Path(str(kernel)), Path(str(rootfs)), size)
