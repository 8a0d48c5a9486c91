#!/bin/sh
# Runs the tests of the container backend on a Docker and a Podman of their own.
#
# Usage: scripts/e2e_container.sh PYTHON [pytest arguments]
#
# The runtimes run in fresh namespaces (network, mounts, processes): whatever they do to
# bridges, firewall rules and mounts ends with this script, and nothing of this machine's own
# runtimes is touched. Needs root; what is missing is installed where apt-get can be used.
#
# Where no runtime can be had, that is a failure if CI is set, unless KICI_E2E_OPTIONAL is set
# too; the tests then skip themselves, and it is said so in a way that nobody can overlook.
set -eu

PACKAGES="docker.io iptables podman nftables busybox-static docker-registry"
BUILD="$(pwd)/build/e2e"
TREE="$BUILD/base.tar"
PACKAGES_LOG="$BUILD/packages.log"
python="$1"
shift
case " $*" in
*" tests/"*) ;;
*) set -- "$@" tests/e2e/container ;;
esac

say() { echo "e2e-container: $*" >&2; }

give_up() {
    say "$1"
    if [ -n "${KICI_E2E_OPTIONAL:-}" ]; then
        say "****************************************************************************"
        say "SKIPPED: the container backend was tested on no real runtime in this run."
        say "****************************************************************************"
        exit 0
    fi
    [ -z "${CI:-}" ] || exit 1
    "$python" -m pytest tests/e2e/container
    exit
}

complete() {
    for program in dockerd podman nft iptables docker-registry ip; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
}

# shellcheck disable=SC2086  # a list of words
install_packages() {
    export DEBIAN_FRONTEND=noninteractive
    options="-o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30"
    # One source of several that does not answer need not be the one that is needed.
    timeout 300 apt-get $options update -qq || true
    timeout 900 apt-get $options -o DPkg::Lock::Timeout=300 install -y -qq \
        --no-install-recommends $PACKAGES
}

# In namespaces of its own; the first process in there collects what killed runtimes leave.
inside() {
    KICI_E2E_TREE="$TREE" TMPDIR="$folder" unshare --net --mount --pid --fork --kill-child \
        --mount-proc sh -eu -c '
        mount --make-rprivate /
        mount -t tmpfs tmpfs /run
        mkdir -p /run/lock /run/netns /var/lib/cni
        mount -t tmpfs tmpfs /var/lib/cni
        ip link set lo up
        # Not exec: see above.
        "$@"
    ' inside "$@"
}

# What the runtimes were limited by and kept; every process in there is gone by then.
clean() {
    find /sys/fs/cgroup -depth -type d -path '*/kici-e2e/*' -exec rmdir {} + 2>/dev/null || true
    rm -rf "$folder" || true
}

[ "$(id -u)" = 0 ] || give_up "container runtimes can be started by root only"
mkdir -p "$BUILD"
if ! complete; then
    command -v apt-get >/dev/null 2>&1 || give_up "install these first: $PACKAGES"
    say "installing $PACKAGES"
    install_packages >"$PACKAGES_LOG" 2>&1 ||
        give_up "the packages cannot be installed: $(tail -n 3 "$PACKAGES_LOG")"
fi
"$python" -m tests.e2e.container.base_tree "$TREE" || give_up "no base tree can be made"

# Short, since sockets are in there, and open, since servers that are not root are too.
folder="$(mktemp -d /tmp/kici-e2e-XXXXXX)"
chmod 755 "$folder"
trap clean EXIT
trap 'exit 143' HUP INT TERM
inside "$python" -m tests.e2e.container.probe "$TREE" || give_up "this machine runs no containers"
inside "$python" -m pytest "$@"
