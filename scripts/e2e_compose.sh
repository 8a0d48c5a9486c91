#!/bin/sh
# Runs the whole compose file on a Docker of its own, with images that are made on the spot.
#
# Usage: scripts/e2e_compose.sh PYTHON [options of `python -m tests.e2e.compose`]
#
# Docker runs in fresh namespaces (network, mounts, processes) with a data folder of its own, so
# nothing of this machine's own runtimes is touched, and everything ends with this script. Needs
# root; what is missing is installed where apt-get can be used.
set -eu

PACKAGES="docker.io docker-compose iptables"
WORKSHOP="$(pwd)/build/e2e-compose"
python="$1"
shift

say() { echo "e2e-compose: $*" >&2; }

give_up() {
    say "not run: $1"
    [ -z "${CI:-}" ] || exit 1
    exit 0
}

complete() {
    for program in dockerd docker-compose iptables; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
}

[ "$(id -u)" = 0 ] || give_up "Docker can be started by root only"
command -v apt-get >/dev/null 2>&1 || give_up "images are made from Debian's packages"
mkdir -p "$WORKSHOP"
if ! complete; then
    say "installing $PACKAGES"
    apt-get update -qq >"$WORKSHOP/packages.log" 2>&1 || true
    # shellcheck disable=SC2086  # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        -o DPkg::Lock::Timeout=300 --no-install-recommends $PACKAGES \
        >>"$WORKSHOP/packages.log" 2>&1 || give_up "$(tail -n 3 "$WORKSHOP/packages.log")"
fi
"$python" -m tests.e2e.compose.stand_ins "$WORKSHOP"

status=0
unshare --net --mount --pid --fork --kill-child --mount-proc sh -eu -c '
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    mkdir -p /run/lock /run/netns
    ip link set lo up
    # Not exec: this shell, the first process in here, collects what killed runtimes leave.
    "$@"
' inside "$python" -m tests.e2e.compose "$WORKSHOP" "$@" || status=$?
find /sys/fs/cgroup -depth -type d \( -path '*/kici-e2e/*' -o -name kici-e2e \) -exec rmdir {} + 2>/dev/null || true
exit "$status"
