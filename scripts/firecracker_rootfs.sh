#!/bin/sh
# Makes a root file system for microVMs from Debian packages.
#
# Usage: scripts/firecracker_rootfs.sh PYTHON FILE
#
#   SUITE=bookworm       the Debian release
#   MIRROR=              where packages come from; debootstrap's default unless given
#   PACKAGES=            more packages for jobs, separated by commas
#   SIZE_MIB=            size of the file system; what is needed and a quarter unless given
#   SOURCE_DATE_EPOCH=   the time that all files carry, in seconds; the last commit's unless given
#
# The file holds python3, the agent and /init, and what PACKAGES adds; guests may only read it.
# The same packages give the same bytes: times, owners, the file system's id and the order of its
# files are fixed. Needs root for debootstrap's chroot, and debootstrap and e2fsprogs.
set -eu

python="$1"
file="$2"
here="$(cd "$(dirname "$0")" && pwd)"
suite="${SUITE:-bookworm}"
epoch="${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 1700000000)}"
# What /init, the agent and its jobs need; the rest of a minimal Debian is left out.
packages="python3-minimal,python3,ca-certificates,iproute2,nftables,mount${PACKAGES:+,$PACKAGES}"

say() { echo "firecracker-rootfs: $*" >&2; }
for program in debootstrap mke2fs; do
    command -v "$program" >/dev/null 2>&1 || {
        say "install debootstrap and e2fsprogs first: there is no $program"
        exit 1
    }
done
[ "$(id -u)" = 0 ] || { say "debootstrap needs root"; exit 1; }

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM
root="$work/root"

say "Debian $suite with $packages"
debootstrap --variant=minbase --include="$packages" "$suite" "$root" ${MIRROR:+"$MIRROR"} \
    >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }

"$python" -m kici_scaler.agent.build "$work/agent" >/dev/null
install -m 0755 -D "$work/agent" "$root/usr/local/bin/kici-agent"
install -m 0755 "$here/firecracker_init.py" "$root/init"
mkdir -p "$root/overlay"

# What differs from one run to the next, or that no guest needs.
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/tmp/* \
    "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* \
    "$root"/usr/share/info/* "$root"/var/cache/ldconfig/* "$root"/var/cache/debconf/*-old \
    "$root"/dev/* "$root"/etc/resolv.conf
find "$root" -name __pycache__ -type d -prune -exec rm -rf {} +
# Guests cannot keep what they compile, so it is there already; by the sources' content and not by
# their times, and with the order of sets fixed, it is the same each time.
chroot "$root" env -i PATH=/usr/bin:/bin PYTHONHASHSEED=0 python3 -m compileall -q \
    --invalidation-mode unchecked-hash -x '/(lib2to3|pydoc_data)/' \
    "$(chroot "$root" python3 -c 'import os; print(os.path.dirname(os.__file__))')"
echo microvm >"$root/etc/hostname"
: >"$root/etc/machine-id"
find "$root" -newermt "@$epoch" -exec touch --no-dereference --date="@$epoch" {} +

need="$(du --summarize --apparent-size --block-size=1M "$root" | cut -f 1)"
size="${SIZE_MIB:-$((need + need / 4 + 16))}"
mkdir -p "$(dirname "$file")"
rm -f "$file.new"
# No journal, since nobody writes; a fixed id and hash seed, so that it can be made again.
E2FSPROGS_FAKE_TIME="$epoch" mke2fs -q -t ext4 -d "$root" -L kici-root -m 0 \
    -O '^has_journal' -U 6b696369-0000-4000-8000-000000000001 \
    -E hash_seed=6b696369-0000-4000-8000-000000000002,root_owner=0:0 "$file.new" "${size}M"
chmod 0644 "$file.new"
mv "$file.new" "$file"
say "$file: $size MiB, sha256 $(sha256sum "$file" | cut -d ' ' -f 1)"
