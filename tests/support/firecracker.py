"""The firecracker backend under the conformance suite: on real microVMs, or on a recorder.

`KICI_TEST_FIRECRACKER` names a folder with `firecracker`, `jailer` and `guest.elf`; without it
the recorder of `firecracker_recorder` plays the first two. `HOW` says which it was.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from kici_scaler.domain.scalers import BackendType, LabelSet, Scaler
from tests.conformance.callers import Caller
from tests.conformance.harness import Harness, soon
from tests.support.address_file import AddressFile
from tests.support.net_namespace import own_network
from tests.support.waiting import eventually
from workers.contract import BackendContext, ComputeRef, SpawnOrder
from workers.errors import BackendError
from workers.firecracker.api import FirecrackerApi
from workers.firecracker.backend import FirecrackerBackend
from workers.firecracker.layout import Layout
from workers.firecracker.links import opened
from workers.firecracker.teardown import remove_cgroups

REAL = os.environ.get("KICI_TEST_FIRECRACKER", "")
HOW = f"real microVMs of {REAL}" if REAL else "a recorder that plays Firecracker"

PLACEHOLDER = b"AGENT-ID-HERE".ljust(64, b"-")
"""Where the guest's file has the agent's id."""

MOST_READ_BYTES = 4 << 20
"""Larger files are programs and drives."""


@contextmanager
def network_with_exit() -> Iterator[None]:
    """A network of the test's own with a way out, `out0`."""
    with own_network():
        with opened() as links:
            route = links._route
            route.link("set", index=route.link_lookup(ifname="lo")[0], state="up")
            route.link("add", ifname="out0", kind="bridge")
            index = route.link_lookup(ifname="out0")[0]
            route.addr("add", index=index, address="192.0.2.2", prefixlen=24)
            route.link("set", index=index, state="up")
            route.route("add", dst="default", gateway="192.0.2.1")
        yield


class FirecrackerHarness(Harness):
    """The process table, and a file that every jailer signs, are the witness."""

    backend_type = "firecracker"
    kill_rounds: int = 4  # type: ignore[misc]  # raised where microVMs are real

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.base = folder / "jails"
        self.base.mkdir(mode=0o711)
        self._witness = folder / "witness"
        self._witness.touch()
        self._images = folder / "images"
        self._images.mkdir()
        self._programs = self._made_programs()
        self._jailer = self._script("jailer", f"{self._programs / 'jailer'}")

    @property
    def context(self) -> BackendContext:
        return replace(super().context, addresses=AddressFile(self.folder / "book.json"))

    def open(self) -> FirecrackerBackend:
        return FirecrackerBackend(self.context)

    @property
    def options(self) -> dict[str, object]:
        """The scaler's own options."""
        return {
            "firecrackerPath": str(self._programs / "firecracker"),
            "jailerPath": str(self._jailer),
            "kernelPath": str(self._images / "kernel"),
            "uid": 65534,
            "gid": 65534,
            "chrootBaseDir": str(self.base),
        }

    def label_set(self, agent_id: str | None = None) -> LabelSet:
        options: dict[str, object] = {
            "rootfsPath": str(self._images / "rootfs.ext4"),
            "overlayDriveSizeMib": 16,
            "memSizeMib": 64,
            "vcpuCount": 1,
        }
        if REAL and agent_id:
            guest = (Path(REAL) / "guest.elf").read_bytes()
            own = guest.replace(PLACEHOLDER, agent_id.encode().ljust(64, b"\0"))
            options["kernelPath"] = str(self._write(f"kernel-{agent_id}", own))
        return LabelSet(0, ("linux", "x64"), options=options)

    def scaler(self) -> Scaler:
        sets = (self.label_set(),)
        return Scaler("pool", BackendType.FIRECRACKER, 10, sets, options=self.options)

    def order(self, agent_id: str, token: int = 1, **more: object) -> SpawnOrder:
        made = super().order(agent_id, token, **more)  # type: ignore[arg-type]  # passed on
        return replace(made, options=self.options, label_set=self.label_set(agent_id))

    def ref(self, agent_id: str, token: int) -> ComputeRef:
        return replace(super().ref(agent_id, token), options=self.options)

    def layout(self, agent_id: str) -> Layout:
        """Where its microVM lies."""
        return Layout(self.base, agent_id)

    def starts(self, agent_id: str) -> int:
        return self._witness.read_text().split().count(agent_id)

    def living(self, agent_id: str) -> int:
        return len(self._in_jail(agent_id))

    def end(self, agent_id: str) -> None:
        eventually(lambda: FirecrackerApi(self.layout(agent_id).socket).is_there(soon()))
        FirecrackerApi(self.layout(agent_id).socket).ask_to_end(soon())
        eventually(lambda: self.layout(agent_id).exit.exists(), why=f"{agent_id} did not end")

    def kill(self, caller: Caller[object], round_number: int) -> None:
        """In turn with the caller: nobody else, its monitor, its microVM."""
        helpers = psutil.Process(caller.pid).children(recursive=True)
        super().kill(caller, round_number)
        if round_number % 3 == 1:
            for each in helpers:
                with suppress(psutil.Error):
                    each.kill()
        if round_number % 3 == 2:
            for pid in self._in_jail(None):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def kept(self) -> Iterator[tuple[str, bytes]]:
        for each in self.folder.rglob("*"):
            with suppress(OSError):
                if each.is_file() and each.stat().st_size < MOST_READ_BYTES:
                    yield str(each), each.read_bytes()

    def close(self) -> None:
        for pid in self._in_jail(None):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for home in (self.base / "firecracker").glob("*"):
            with suppress(BackendError):
                remove_cgroups(home.name, soon())

    def _in_jail(self, agent_id: str | None) -> list[int]:
        """The processes whose root is in the agent's jail, or in any of ours."""
        homes = (self.base / "firecracker").glob(agent_id or "*")
        roots = {_identity(home / "root") for home in homes} - {None}
        running = (each for each in psutil.process_iter() if _is_running(each))
        return [each.pid for each in running if _identity(Path(f"/proc/{each.pid}/root")) in roots]

    def _made_programs(self) -> Path:
        """The folder of the programs; the images are made as well."""
        self._write("rootfs.ext4", bytes(1 << 20))
        self._write("kernel", b"kernel")
        if REAL:
            return Path(REAL)
        folder = self.folder / "programs"
        folder.mkdir()
        script = Path(__file__).with_name("firecracker_recorder.py")
        jailer = folder / "jailer"
        jailer.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {script} "$@"\n')
        (folder / "firecracker").write_text("#!/bin/sh\n")
        for each in folder.iterdir():
            each.chmod(0o755)
        return folder

    def _script(self, name: str, program: str) -> Path:
        """A program that signs the witness with its `--id` and goes on as the real one."""
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "$2" >> {self._witness}\nexec {program} "$@"\n')
        path.chmod(0o755)
        return path

    def _write(self, name: str, content: bytes) -> Path:
        path = self._images / name
        if not path.exists():
            path.write_bytes(content)
            path.chmod(0o644)
        return path


def opened_harness(folder: Path) -> FirecrackerHarness:
    """A harness whose machine is prepared."""
    made = FirecrackerHarness(folder)
    made.open().prepare([made.scaler()], soon())
    return made


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
