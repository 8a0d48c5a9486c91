"""Makes the small first root with which a stock Linux kernel comes to a microVM's own root.

Kernels for microVMs have their drivers built in; a distribution's has them as modules. This loads
those, gives the interface the address of the kernel's command line, and goes on to `/init` as a
kernel that has all that would. Run as a program: `python -m tests.support.initrd TREE FILE`, with
the unpacked packages of a kernel and of a static busybox below TREE.
"""

from __future__ import annotations

import gzip
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

WANTED = ("virtio_pci", "virtio_blk", "virtio_net", "overlay", "nf_tables")

INIT = """#!/bin/busybox sh
export PATH=/
for each in mount insmod ip switch_root sleep; do /bin/busybox ln -s /bin/busybox /$each; done
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do insmod /modules/$module || exit 1; done
for word in $(/bin/busybox cat /proc/cmdline); do
    case $word in ip=*) address=${word#ip=} ;; esac
done
IFS=: ; set -- $address; IFS=' '
until [ -e /dev/vdb ] && ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done
ip link set eth0 up && ip addr add "$1/${4:-255.255.255.0}" dev eth0 || exit 1
ip route add default via "$3" || exit 1
mount -t ext4 -o ro /dev/vda /guest || exit 1
mount -t devtmpfs dev /guest/dev || exit 1
exec switch_root /guest /init
"""


def module_files(tree: Path, wanted: tuple[str, ...]) -> list[Path]:
    """Those modules of the kernel and all that they need, in the order in which they load.

    A module says itself what it needs; what is not among the files is built in.
    """
    there = {_name(each): each for each in (tree / "lib/modules").rglob("*.ko")}
    order: list[str] = []

    def add(name: str) -> None:
        if name in order or name not in there:
            return
        for needed in _needs(there[name]):
            add(needed)
        order.append(name)

    for each in wanted:
        add(each)
    return [there[each] for each in order]


def archive(tree: Path) -> bytes:
    """The first root as the kernel unpacks it."""
    modules = module_files(tree, WANTED)
    folders = ("bin", "dev", "guest", "modules", "proc", "sys")
    content = [_entry(each, stat.S_IFDIR | 0o755) for each in folders]
    content.append(_entry("bin/busybox", _PROGRAM, (tree / "bin/busybox").read_bytes()))
    content.extend(_entry(f"modules/{each.name}", _FILE, each.read_bytes()) for each in modules)
    order = " ".join(each.name for each in modules)
    content.append(_entry("modules/order", _FILE, order.encode()))
    content.append(_entry("init", _PROGRAM, INIT.encode()))
    content.append(_entry("TRAILER!!!", 0))
    return gzip.compress(b"".join(content), mtime=0)


_PROGRAM = stat.S_IFREG | 0o755
_FILE = stat.S_IFREG | 0o644


def _entry(name: str, mode: int, data: bytes = b"") -> bytes:
    """One file in the `newc` format of cpio."""
    path = name.encode() + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % number for number in numbers)
    return _padded(head + path) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _name(module: Path) -> str:
    return module.stem.replace("-", "_")


def _needs(module: Path) -> Iterator[str]:
    found = re.search(rb"\0depends=([^\0]*)\0", module.read_bytes())
    names = found.group(1).decode() if found else ""
    yield from (each.replace("-", "_") for each in names.split(",") if each)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(archive(Path(sys.argv[1])))
