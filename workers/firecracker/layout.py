"""Where everything of one microVM lies on its machine; the jailer decides most of it.

| under `<chrootBaseDir>/firecracker/<agent>/` | is |
| --- | --- |
| `agent.json` | whose it is and what was made for it; outside of what the guest's process sees |
| `started` | there from the moment at which a start may happen; nothing is started beside it |
| `monitor.lock` | held by the monitor as long as that lives |
| `console.log`, `console.log.1` | the newest of what the guest printed, and what was before that |
| `exit.json` | how the microVM ended |
| `root/` | what the microVM's process sees as `/` |
| `root/kernel`, `root/rootfs.ext4` | links to the originals, or copies |
| `root/overlay.ext4` | the drive that the guest may write |
| `root/config.json`, `root/vmm.log` | what Firecracker reads at its start, and its own log |
| `root/run/firecracker.socket`, `root/firecracker.pid` | its API, and its process |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

JAILS = "firecracker"
"""The folder below the base; the jailer names it after the program."""

DESCRIPTION = "agent.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one agent's microVM."""

    base: Path
    agent_id: str
    program: str = JAILS
    """The name of the Firecracker program's file."""

    @classmethod
    def of_home(cls, home: Path) -> Layout:
        """The paths of the microVM in that folder."""
        return cls(home.parent.parent, home.name, home.parent.name)

    @property
    def home(self) -> Path:
        """All of it."""
        return self.base / self.program / self.agent_id

    @property
    def root(self) -> Path:
        """What its process sees as `/`."""
        return self.home / "root"

    @property
    def description(self) -> Path:
        """Whose it is."""
        return self.home / DESCRIPTION

    @property
    def started(self) -> Path:
        """There when a start may have happened."""
        return self.home / "started"

    @property
    def lock(self) -> Path:
        """Held while its monitor lives."""
        return self.home / "monitor.lock"

    @property
    def console(self) -> Path:
        """The newest part of what the guest printed."""
        return self.home / "console.log"

    @property
    def exit(self) -> Path:
        """How it ended."""
        return self.home / "exit.json"

    @property
    def socket(self) -> Path:
        """Firecracker's API."""
        return self.root / "run" / "firecracker.socket"

    @property
    def pid_file(self) -> Path:
        """The process, as the jailer wrote it down."""
        return self.root / f"{self.program}.pid"

    @property
    def vmm_log(self) -> Path:
        """Firecracker's own log."""
        return self.root / "vmm.log"


def homes_in(base: Path) -> Iterator[Path]:
    """The folders of microVMs below a base, whoever's they are.

    Raises:
        OSError: the base is there and cannot be read.
    """
    try:
        programs = sorted(each for each in base.iterdir() if each.name.startswith(JAILS))
    except FileNotFoundError:
        return
    for program in programs:
        if program.is_dir():
            yield from sorted(each for each in program.iterdir() if each.is_dir())
