#!/bin/sh
# Runs the tests of machines reached by SSH, on OpenSSH servers in namespaces.
#
# Usage: scripts/e2e_ssh.sh PYTHON [pytest arguments]
#
# Everything happens in fresh namespaces (network, mounts, processes), so bridges, mounts and
# machines end with this script and nothing of this machine's own is touched. Needs root; what is
# missing is installed where apt-get can be used.
#
# Where no machine can be made, that is a failure if CI is set, unless KICI_E2E_OPTIONAL is set
# too; the tests are then left out, and it is said so in a way that nobody can overlook.
set -eu

PACKAGES="openssh-server openssh-client iproute2"
python="$1"
shift
case " $*" in
*" tests/"*) ;;
*) set -- "$@" tests/e2e/ssh ;;
esac

say() { echo "e2e-ssh: $*" >&2; }

give_up() {
    say "$1"
    say "****************************************************************************"
    say "SKIPPED: machines reached by SSH were tested on no real network in this run."
    say "****************************************************************************"
    [ -n "${KICI_E2E_OPTIONAL:-}" ] || [ -z "${CI:-}" ] || exit 1
    exit 0
}

complete() {
    for program in ssh-keygen ip nsenter unshare mount; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
    [ -x /usr/sbin/sshd ]
}

# shellcheck disable=SC2086  # a list of words
install_packages() {
    export DEBIAN_FRONTEND=noninteractive
    options="-o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30"
    timeout 300 apt-get $options update -qq || true
    timeout 600 apt-get $options -o DPkg::Lock::Timeout=300 install -y -qq \
        --no-install-recommends $PACKAGES
}

# The first process in there collects what killed machines leave.
inside() {
    KICI_E2E_SSH=1 TMPDIR="$folder" unshare --net --mount --pid --fork --kill-child --mount-proc \
        sh -eu -c '
        mount --make-rprivate /
        mount -t tmpfs tmpfs /run
        mkdir -p /run/sshd /run/netns
        ip link set lo up
        # Not exec: see above.
        "$@"
    ' inside "$@"
}

[ "$(id -u)" = 0 ] || give_up "namespaces with addresses of their own can be made by root only"
if ! complete; then
    command -v apt-get >/dev/null 2>&1 || give_up "install these first: $PACKAGES"
    say "installing $PACKAGES"
    install_packages >/dev/null 2>&1 || give_up "the packages cannot be installed: $PACKAGES"
fi

# Short, since sockets are in there, and open, since servers that are not root are too.
folder="$(mktemp -d /tmp/kici-ssh-XXXXXX)"
chmod 755 "$folder"
trap 'rm -rf "$folder"' EXIT
trap 'exit 143' HUP INT TERM
inside true || give_up "this machine makes no namespaces"
inside "$python" -m pytest --timeout 1200 "$@"
