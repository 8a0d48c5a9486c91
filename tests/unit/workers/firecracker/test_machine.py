"""A microVM on paper: its size, its configuration file, its jail, its names."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from kici_scaler.domain.guest_addresses import GuestAddress, GuestNetwork
from kici_scaler.domain.scalers import Amount, LabelSet
from tests.unit.workers.firecracker.orders import AGENT
from workers.errors import Permanent
from workers.firecracker.jail import (
    CgroupVersion,
    cgroup_folders,
    cgroup_version,
    jailer_command,
    limits,
)
from workers.firecracker.layout import Layout, homes_in
from workers.firecracker.machine import MIB, Size, machine_document, size_of
from workers.firecracker.names import TAP_PATTERN, ports_of, tap_names
from workers.firecracker.settings import Bridge, Images, Programs

NETWORK = GuestNetwork("10.0.0.0/24", "10.0.0.1", "255.255.255.0")
GUEST = GuestAddress("10.0.0.5", "06:00:AC:00:00:05", "kici-456789ab")
OPTIONS: dict[str, object] = {
    "firecrackerPath": "/usr/bin/firecracker",
    "jailerPath": "/usr/bin/jailer",
    "kernelPath": "/kernel",
    "uid": 1001,
    "gid": 1002,
    "vcpuCount": 2,
    "memSizeMib": 512,
}
LABEL_SET = LabelSet(0, ("vm",), options={"rootfsPath": "/rootfs", "memSizeMib": 1024})


@pytest.mark.parametrize(
    ("amount", "vcpus", "memory"),
    [
        (Amount(), 2, 1024),
        (Amount(1500, None), 2, 1024),
        (Amount(2001, 3 * MIB + 1), 3, 3),
        (Amount(250, MIB - 1), 1, 1024),
    ],
)
def test_effective_limits_come_first_then_the_label_set_then_the_scaler(
    amount: Amount, vcpus: int, memory: int
) -> None:
    size = size_of(amount, LABEL_SET, OPTIONS)

    assert (size.vcpus, size.memory_mib) == (vcpus, memory)


def test_a_fraction_of_a_cpu_is_held_by_the_machine_not_by_the_guest() -> None:
    assert size_of(Amount(1500, None), LABEL_SET, OPTIONS).cpu_millis == 1500
    assert size_of(Amount(), LABEL_SET, OPTIONS).cpu_millis == 2000


def test_the_configuration_has_a_root_that_is_only_read_and_a_drive_to_write() -> None:
    document = machine_document(Size(2, 512, 2000), GUEST, NETWORK)

    drives = document["drives"]
    assert isinstance(drives, list)
    assert [(each["is_root_device"], each["is_read_only"]) for each in drives] == [
        (True, True),
        (False, False),
    ]
    assert document["boot-source"] == {
        "kernel_image_path": "/kernel",
        "boot_args": "console=ttyS0 reboot=k panic=1 random.trust_cpu=on init=/init "
        "ip=10.0.0.5::10.0.0.1:255.255.255.0::eth0:off",
    }
    assert document["machine-config"] == {"vcpu_count": 2, "mem_size_mib": 512, "smt": False}
    assert document["network-interfaces"] == [
        {"iface_id": "eth0", "host_dev_name": GUEST.tap, "guest_mac": GUEST.mac}
    ]
    assert document["mmds-config"] == {
        "version": "V2",
        "ipv4_address": "169.254.169.254",
        "network_interfaces": ["eth0"],
    }


def test_the_jail_has_its_own_processes_user_and_limits() -> None:
    programs = Programs.of(OPTIONS)
    layout = Layout(programs.chroot_base, AGENT)

    command = jailer_command(programs, layout, Size(2, 512, 1500), CgroupVersion.V2)

    text = " ".join(command)
    assert text.startswith(f"/usr/bin/jailer --id {AGENT} --exec-file /usr/bin/firecracker")
    assert "--uid 1001 --gid 1002 --chroot-base-dir /srv/jailer --new-pid-ns" in text
    assert f"--cgroup memory.max={640 * MIB}" in text
    assert "--cgroup cpu.max=150000 100000" in text
    assert text.endswith("-- --config-file /config.json --log-path /vmm.log --level Warning")
    assert "--daemonize" not in command


def test_the_first_kind_of_cgroups_calls_its_limits_otherwise() -> None:
    assert limits(Size(1, 128, 1000), CgroupVersion.V1) == (
        f"memory.limit_in_bytes={256 * MIB}",
        "cpu.cfs_period_us=100000",
        "cpu.cfs_quota_us=100000",
    )


def test_the_kind_of_cgroups_is_told_by_what_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "cpu" / "kici" / AGENT).mkdir(parents=True)
    (tmp_path / "cpuacct").symlink_to("cpu")
    (tmp_path / "pids").mkdir()

    assert cgroup_version(tmp_path) is CgroupVersion.V1
    assert [each.resolve() for each in cgroup_folders(AGENT, tmp_path)] == [
        tmp_path / "cpu" / "kici" / AGENT
    ]

    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    assert cgroup_version(tmp_path) is CgroupVersion.V2
    assert cgroup_folders(AGENT, tmp_path) == ()


def test_everything_of_a_microvm_lies_below_its_own_folder(tmp_path: Path) -> None:
    layout = Layout(tmp_path, AGENT)
    layout.root.mkdir(parents=True)

    assert layout.root == tmp_path / "firecracker" / AGENT / "root"
    assert layout.socket == layout.root / "run/firecracker.socket"
    assert layout.pid_file == layout.root / "firecracker.pid"
    assert list(homes_in(tmp_path)) == [layout.home]
    assert list(homes_in(tmp_path / "nothing")) == []


def test_an_interface_is_named_after_the_end_of_the_agents_id() -> None:
    first, *others = tap_names(AGENT)

    assert first == "kici-456789ab"
    assert len({first, *others}) == 8
    assert all(TAP_PATTERN.match(each) and len(each) <= 15 for each in (first, *others))
    assert list(tap_names(AGENT)) == [first, *others]


def test_an_id_with_another_end_has_a_name_too() -> None:
    assert all(TAP_PATTERN.match(each) for each in islice(tap_names("my-agent"), 3))


@pytest.mark.parametrize(("bridge", "ports"), [("kici-br0", "kici-*"), ("fc0", "fc0-*")])
def test_ports_are_matched_by_the_beginning_of_the_bridges_name(bridge: str, ports: str) -> None:
    assert ports_of(bridge) == ports


def test_a_label_sets_own_kernel_wins_over_the_scalers() -> None:
    own = LabelSet(1, ("vm",), options={"rootfsPath": "/r", "kernelPath": "/own"})

    assert Images.of(OPTIONS, LABEL_SET).kernel == Path("/kernel")
    assert Images.of(OPTIONS, own) == Images(Path("/own"), Path("/r"), 2048)


@pytest.mark.parametrize("missing", ["firecrackerPath", "jailerPath", "uid", "gid"])
def test_a_scaler_that_lacks_what_it_needs_is_told_which(missing: str) -> None:
    with pytest.raises(Permanent, match=missing):
        Programs.of({key: value for key, value in OPTIONS.items() if key != missing})


def test_root_may_be_named_as_the_user() -> None:
    assert Programs.of({**OPTIONS, "uid": 0, "gid": 0}).uid == 0


def test_a_label_set_without_a_root_is_told_so() -> None:
    with pytest.raises(Permanent, match="rootfsPath"):
        Images.of(OPTIONS, LabelSet(0, ("vm",)))


def test_the_bridge_is_the_files_own() -> None:
    block = {
        "cidr": "10.44.0.0/22",
        "gateway": "10.44.0.1",
        "netmask": "255.255.252.0",
        "bridgeName": "fc0",
        "table": "mine",
        "autoProvisionHost": False,
    }

    bridge = Bridge.of({"network": block})

    assert (bridge.name, bridge.table, bridge.provisions_itself) == ("fc0", "mine", False)
    assert bridge.network.bridge_address == "10.44.0.1/22"
    assert Bridge.of({}).network == NETWORK
