"""A whole Linux guest for the firecracker backend: the root of `make firecracker-rootfs`.

`KICI_TEST_LINUX_GUEST` names a folder with `rootfs.ext4`, and a stock kernel with what loads its
drivers (`vmlinuz`, `initrd.gz`), which QEMU runs in Firecracker's place; see
`firecracker_qemu.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from kici_scaler.domain.scalers import LabelSet
from tests.support.firecracker import FirecrackerHarness
from tests.support.source import ROOT

FOLDER = os.environ.get("KICI_TEST_LINUX_GUEST", "")
WHY_NOT = "NOT TESTED with a Linux guest: run `make e2e-firecracker` as root on Debian"

_MAIN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from tests.support.firecracker_qemu import main; sys.exit(main(sys.argv[1:]))"
)

MEMORY_MIB = 256


def why_not() -> str:
    """Why no Linux guest can be started here; empty when one can."""
    return "" if FOLDER and shutil.which("qemu-system-x86_64") else WHY_NOT


def make_programs(folder: Path) -> Path:
    """A `firecracker` and a `jailer` in that folder, whose guests are QEMU's."""
    folder.mkdir(parents=True, exist_ok=True)
    jailer = folder / "jailer"
    jailer.write_text(
        f"#!/bin/sh\nPATH={os.environ['PATH']}\nKICI_TEST_INITRD={FOLDER}/initrd.gz\n"
        "export PATH KICI_TEST_INITRD\n"
        f"exec {sys.executable} -I -S -c '{_MAIN}' {ROOT} \"$@\"\n"
    )
    (folder / "firecracker").write_text("#!/bin/sh\n")
    for each in folder.iterdir():
        each.chmod(0o755)
    return folder


class LinuxGuestHarness(FirecrackerHarness):
    """The backend with guests that boot Linux, and may be given a root that is spoilt."""

    def _made_programs(self) -> Path:
        for name, file in (("rootfs.ext4", "rootfs.ext4"), ("kernel", "vmlinuz")):
            (self._images / name).symlink_to(Path(FOLDER, file).absolute())
        return make_programs(self.folder / "programs")

    @property
    def rootfs(self) -> Path:
        """The file of the guests' root, made to be written by the test alone."""
        path = self._images / "rootfs.ext4"
        if path.is_symlink():
            original = path.resolve()
            path.unlink()
            shutil.copyfile(original, path)
            path.chmod(0o644)
        return path

    def label_set(self, agent_id: str | None = None) -> LabelSet:
        made = super().label_set(None)
        return LabelSet(
            made.index,
            made.labels,
            options={**made.options, "overlayDriveSizeMib": 64, "memSizeMib": MEMORY_MIB},
        )
