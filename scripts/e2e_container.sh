#!/bin/sh
# Runs the tests of the container backend on a Docker and a Podman of their own.
#
# Usage: scripts/e2e_container.sh PYTHON [pytest arguments]
#
# The runtimes run in fresh namespaces (network, mounts, processes): whatever they do to
# bridges, firewall rules and mounts ends with this script, and nothing of this machine's own
# runtimes is touched. Needs root; what is missing is installed where apt-get can be used.
set -eu

PACKAGES="docker.io iptables podman nftables busybox-static docker-registry"
TREE="$(pwd)/build/e2e/base.tar"
PACKAGES_LOG="$(pwd)/build/e2e/packages.log"
python="$1"
shift
case " $*" in
*" tests/"*) ;;
*) set -- tests/e2e/container "$@" ;;
esac

say() { echo "e2e-container: $*" >&2; }

# Without what they need the tests skip themselves, saying why. In CI that would hide them.
give_up() {
    say "$1"
    [ -z "${CI:-}" ] || exit 1
    exec "$python" -m pytest tests/e2e/container
}

complete() {
    for program in dockerd podman nft iptables docker-registry; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
}

[ "$(id -u)" = 0 ] || give_up "container runtimes can be started by root only"
if ! complete; then
    command -v apt-get >/dev/null 2>&1 || give_up "install these first: $PACKAGES"
    say "installing $PACKAGES"
    mkdir -p "$(dirname "$PACKAGES_LOG")"
    apt-get update -qq >"$PACKAGES_LOG" 2>&1 || true
    # shellcheck disable=SC2086  # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        -o DPkg::Lock::Timeout=300 --no-install-recommends $PACKAGES \
        >>"$PACKAGES_LOG" 2>&1 || give_up "the packages cannot be installed: $(tail -n 3 "$PACKAGES_LOG")"
fi
"$python" -m tests.e2e.container.base_tree "$TREE" || give_up "no base tree can be made"

status=0
KICI_E2E_TREE="$TREE" unshare --net --mount --pid --fork --kill-child --mount-proc sh -eu -c '
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    mkdir -p /run/lock /run/netns /var/lib/cni
    mount -t tmpfs tmpfs /var/lib/cni
    ip link set lo up
    # Not exec: this shell, the first process in here, collects what killed runtimes leave.
    "$@"
' inside "$python" -m pytest "$@" || status=$?

# What the runtimes were limited by; every process in there is gone by now.
find /sys/fs/cgroup -depth -type d -path '*/kici-e2e/*' -exec rmdir {} + 2>/dev/null || true
exit "$status"
