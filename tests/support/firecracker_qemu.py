"""Plays jailer and Firecracker with a whole Linux guest: QEMU, without any KVM.

Run as the jailer. It takes Firecracker's own configuration file and API calls, and starts
`qemu-system-x86_64` with the same kernel, command line, drives, interface and address. The guest's
metadata service is reached as Firecracker has it: frames for its address never come to the
host's network. They go to a network of their own, whose kernel answers them (`mmds.py`).

A stock kernel needs its drivers first: `KICI_TEST_INITRD` names what loads them. Standard library
only.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import threading
from typing import Any

from tests.support.firecracker_recorder import Api, Jail
from tests.support.mmds import Mmds

PR_SET_PDEATHSIG = 1
TUNSETIFF = 0x400454CA
IFF_TAP_WITHOUT_HEADER = 0x1002
MOST_BYTES = 1 << 16
LIBGCC = "libgcc_s.so.1"
"""Threads that end look for it, and in the jail it is not to be found."""


def main(arguments: list[str]) -> int:
    """Start the guest in a child, note its pid, and end, as the jailer does."""
    jail = Jail.of(arguments)
    if not jail.begin():
        return 0
    said = json.loads((jail.root / "config.json").read_text())
    api = Api(jail.agent_id, jail.calls())
    [interface] = said["network-interfaces"]
    outside = open_tap(interface["host_dev_name"])
    mmds = Mmds(said["mmds-config"]["ipv4_address"], lambda: api.metadata)
    frames, guests_frames = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    keys, guests_keys = socket.socketpair()
    qemu = start(jail, said, guests_frames, guests_keys)
    guests_frames.close()
    guests_keys.close()
    ctypes.CDLL(LIBGCC)
    jail.enter()
    for work in (
        lambda: carry(frames, outside, mmds),
        lambda: api.serve("/run/firecracker.socket", lambda: press_ctrl_alt_del(keys)),
    ):
        threading.Thread(target=work, daemon=True).start()
    return qemu.wait()


def start(
    jail: Jail, said: dict[str, Any], frames: socket.socket, keys: socket.socket
) -> subprocess.Popen[bytes]:
    """QEMU with the machine that the configuration describes, in the jail and as its user."""
    size, source = said["machine-config"], said["boot-source"]
    [interface] = said["network-interfaces"]
    command = [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot",
        "-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "qemu64",
        "-smp", str(size["vcpu_count"]), "-m", f"{size['mem_size_mib']}M",
        "-display", "none", "-serial", "stdio",
        "-kernel", f"{jail.root}{source['kernel_image_path']}",
        "-initrd", os.environ["KICI_TEST_INITRD"],
        # Firecracker adds the root device to the command line, too.
        "-append", f"{source['boot_args']} root=/dev/vda ro",
        "-netdev", f"dgram,id=net,local.type=fd,local.str={frames.fileno()}",
        "-device", f"virtio-net-pci,netdev=net,mac={interface['guest_mac']},addr=4,romfile=",
        "-chardev", f"socket,id=keys,fd={keys.fileno()}",
        "-mon", "chardev=keys,mode=control",
        "-name", f"guest,process={jail.program}",
        "-chroot", str(jail.root),
        "-runas", f"{jail.uid}:{jail.gid}",
    ]  # fmt: skip
    for number, drive in enumerate(said["drives"]):
        mode = "on" if drive["is_read_only"] else "off"
        file = f"{jail.root}{drive['path_on_host']}"
        command += [
            "-drive", f"file={file},if=none,id={drive['drive_id']},format=raw,read-only={mode}",
            "-device", f"virtio-blk-pci,drive={drive['drive_id']},addr={8 + number}",
        ]  # fmt: skip
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "LD_PRELOAD": LIBGCC},
        pass_fds=(frames.fileno(), keys.fileno()),
        preexec_fn=_end_with_parent,
    )


def open_tap(name: str) -> int:
    """The guest's interface on the host, which is there already."""
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP_WITHOUT_HEADER))
    return handle


def carry(guest: socket.socket, outside: int, mmds: Mmds) -> None:
    """Carry frames between the guest, the host's bridge and the metadata service."""
    while True:
        ready, _, _ = select.select([guest.fileno(), outside, mmds.tap], [], [])
        if guest.fileno() in ready:
            frame = guest.recv(MOST_BYTES)
            os.write(mmds.tap if mmds.is_for(frame) else outside, frame)
        for other in {outside, mmds.tap}.intersection(ready):
            frame = os.read(other, MOST_BYTES)
            if other == outside or mmds.is_from(frame):
                guest.send(frame)


def press_ctrl_alt_del(keys: socket.socket) -> None:
    """Press them on the guest's keyboard, as Firecracker does."""
    pressed = {"execute": "human-monitor-command",
               "arguments": {"command-line": "sendkey ctrl-alt-delete"}}  # fmt: skip
    for order in ({"execute": "qmp_capabilities"}, pressed):
        keys.sendall(json.dumps(order).encode() + b"\n")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
