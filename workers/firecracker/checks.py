"""What of a scaler's needs is there on this machine; changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from kici_scaler.domain.diagnosis import network_subject
from kici_scaler.domain.scalers import LabelSet, Scaler
from workers.contract import Deadline, Finding, Severity
from workers.errors import BackendError
from workers.firecracker import chroot
from workers.firecracker.host_network import HostNetwork
from workers.firecracker.machine import MOST_VCPUS, size_of
from workers.firecracker.settings import Images, Programs

KVM = Path("/dev/kvm")


def findings_of(
    scaler: Scaler, host: HostNetwork, deadline: Deadline, *, has_book: bool
) -> Iterator[Finding]:
    """One scaler's findings; `has_book` tells whether addresses can be given out."""
    try:
        programs = Programs.of(scaler.options)
    except BackendError as error:
        yield Finding(Severity.ERROR, scaler.name, str(error), error.hint)
        return
    yield from _worker(scaler, has_book)
    for path in (programs.firecracker, programs.jailer):
        yield _executable(scaler, path)
    yield _tool(scaler, "mkfs.ext4", "install e2fsprogs")
    yield _network(scaler, host, deadline)
    yield _room(scaler, programs)
    if programs.uid == 0:
        yield Finding(
            Severity.WARNING,
            scaler.name,
            "microVMs run as root: who breaks out of one is root on this machine",
            "give the scaler a `uid` of its own",
        )
    for label_set in scaler.label_sets:
        yield from _label_set(scaler, label_set, programs)


def _worker(scaler: Scaler, has_book: bool) -> Iterator[Finding]:
    if os.geteuid() != 0:
        yield Finding(
            Severity.ERROR,
            scaler.name,
            "the worker is not root, which jails, interfaces and rules need",
            "run this machine's firecracker worker as root; `requireSudo` is not enough",
        )
    elif scaler.options.get("requireSudo") is True:
        yield Finding(
            Severity.WARNING,
            scaler.name,
            "`requireSudo` changes nothing: the worker is root already",
            "leave it out",
        )
    if not has_book:
        yield Finding(
            Severity.ERROR, scaler.name, "there is no database to keep guests' addresses in"
        )
    if not os.access(KVM, os.R_OK | os.W_OK):
        yield Finding(
            Severity.ERROR,
            scaler.name,
            f"{KVM} cannot be used",
            "switch virtualisation on, and load the kernel's module kvm_intel or kvm_amd",
        )


def _executable(scaler: Scaler, path: Path) -> Finding:
    if path.is_file() and os.access(path, os.X_OK):
        return Finding(Severity.OK, scaler.name, f"{path} is there")
    return Finding(
        Severity.ERROR, scaler.name, f"{path} is no program", "install it, or correct its path"
    )


def _tool(scaler: Scaler, name: str, hint: str) -> Finding:
    if shutil.which(name):
        return Finding(Severity.OK, scaler.name, f"`{name}` is there")
    return Finding(Severity.ERROR, scaler.name, f"`{name}` is not on the path", hint)


def _network(scaler: Scaler, host: HostNetwork, deadline: Deadline) -> Finding:
    subject = network_subject(host.bridge.name)
    try:
        health = host.health(deadline)
    except BackendError as error:
        return Finding(Severity.ERROR, subject, str(error), error.hint)
    if health.is_healthy:
        return Finding(Severity.OK, subject, "healthy")
    return Finding(
        Severity.ERROR, subject, health.detail, "run `kici-scaler firecracker provision`"
    )


def _room(scaler: Scaler, programs: Programs) -> Finding:
    try:
        chroot.require_room(programs.chroot_base)
    except BackendError as error:
        return Finding(Severity.ERROR, scaler.name, str(error), error.hint)
    return Finding(Severity.OK, scaler.name, f"there is room below {programs.chroot_base}")


def _label_set(scaler: Scaler, label_set: LabelSet, programs: Programs) -> Iterator[Finding]:
    subject = f"{scaler.name}, label set {label_set.index}"
    try:
        images = Images.of(scaler.options, label_set)
    except BackendError as error:
        yield Finding(Severity.ERROR, subject, str(error), error.hint)
        return
    for path in (images.kernel, images.rootfs):
        if not os.access(path, os.R_OK):
            yield Finding(Severity.ERROR, subject, f"{path} cannot be read", "put it there")
            continue
        mode = path.stat().st_mode
        if not mode & stat.S_IROTH or mode & stat.S_IWOTH:
            yield Finding(
                Severity.WARNING,
                subject,
                f"{path} is copied for every microVM, which takes time and room",
                "give it to root with mode 0644, so that it can be linked",
            )
        else:
            yield Finding(Severity.OK, subject, f"{path} is there")
    size = size_of(label_set.resources.limits, label_set, scaler.options)
    if size.vcpus > MOST_VCPUS:
        yield Finding(
            Severity.ERROR, subject, f"{size.vcpus} CPUs are more than a microVM may have"
        )
