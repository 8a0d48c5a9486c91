"""A microVM as Firecracker's configuration file describes it; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kici_scaler.domain.guest_addresses import GuestAddress, GuestNetwork
from kici_scaler.domain.scalers import Amount, LabelSet
from workers.firecracker.settings import DEFAULT_MEMORY_MIB, DEFAULT_VCPUS

MIB = 1 << 20

MMDS_ADDRESS = "169.254.169.254"
INTERFACE = "eth0"

OVERHEAD_MIB = 128
"""What Firecracker itself may use beside the guest's memory; measured: below 20 MiB, and page
tables and the page cache of drives grow with the guest."""

MOST_VCPUS = 32
"""Firecracker refuses more."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a guest has: whole CPUs, and memory in MiB.

    `cpu_millis` is what its process may use of the machine, in thousandths of a CPU.
    """

    vcpus: int
    memory_mib: int
    cpu_millis: int

    @property
    def memory_limit_bytes(self) -> int:
        """What its process may use at most, so that a guest cannot make the host swap."""
        return (self.memory_mib + OVERHEAD_MIB) * MIB


def size_of(limits: Amount, label_set: LabelSet, options: Mapping[str, Any]) -> Size:
    """The size of a guest: the effective limits, else the label set's, else the scaler's.

    CPUs are rounded up to whole ones (at least one) and memory down to whole MiB; a limit that
    rounds to no memory at all is ignored.
    """
    vcpus = -(-limits.cpu_millis // 1000) if limits.cpu_millis else 0
    memory = limits.memory_bytes // MIB if limits.memory_bytes else 0
    vcpus = vcpus or _count(label_set.options, options, "vcpuCount", DEFAULT_VCPUS)
    return Size(
        vcpus=vcpus,
        memory_mib=memory or _count(label_set.options, options, "memSizeMib", DEFAULT_MEMORY_MIB),
        cpu_millis=limits.cpu_millis or vcpus * 1000,
    )


def boot_arguments(guest: GuestAddress, network: GuestNetwork) -> str:
    """The kernel's command line: serial console, no waiting after a panic, a fixed address."""
    address = f"{guest.address}::{network.gateway}:{network.netmask}::{INTERFACE}:off"
    return f"console=ttyS0 reboot=k panic=1 random.trust_cpu=on init=/init ip={address}"


def machine_document(
    size: Size, guest: GuestAddress, network: GuestNetwork
) -> dict[str, dict[str, object] | list[dict[str, object]]]:
    """The configuration file; its paths are those inside the jail."""
    return {
        "boot-source": {
            "kernel_image_path": "/kernel",
            "boot_args": boot_arguments(guest, network),
        },
        "drives": [
            {
                "drive_id": "rootfs",
                "path_on_host": "/rootfs.ext4",
                "is_root_device": True,
                "is_read_only": True,
            },
            {
                "drive_id": "overlay",
                "path_on_host": "/overlay.ext4",
                "is_root_device": False,
                "is_read_only": False,
            },
        ],
        "machine-config": {
            "vcpu_count": size.vcpus,
            "mem_size_mib": size.memory_mib,
            "smt": False,
        },
        "network-interfaces": [
            {"iface_id": INTERFACE, "host_dev_name": guest.tap, "guest_mac": guest.mac}
        ],
        "mmds-config": {
            "version": "V2",
            "ipv4_address": MMDS_ADDRESS,
            "network_interfaces": [INTERFACE],
        },
    }


def _count(first: Mapping[str, Any], then: Mapping[str, Any], key: str, otherwise: int) -> int:
    for options in (first, then):
        value = options.get(key)
        if isinstance(value, int) and value > 0:
            return value
    return otherwise
