"""What a machine remembers of each agent: the fence, and where its microVM lies.

What lies beside the microVM says itself what it is; this says what must still hold when nothing
is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workers import records
from workers.firecracker.layout import JAILS, Layout


@dataclass(frozen=True, slots=True)
class Record(records.Fenced):
    """What is remembered of one agent."""

    base: str = ""
    """The chroot base it lies below; empty while nothing was begun."""
    program: str = JAILS
    scaler: str = ""
    has_run: bool = False
    """A start was begun at some time: what ran under the name is never started again."""
    tap: str = ""
    """Its interface's name, once it has one."""
    is_told: bool = False
    """Its guest was handed the agent's token."""
    is_cleared: bool = False
    """And that was taken away again, after the agent had read it."""

    @property
    def has_begun(self) -> bool:
        """Whether anything of it may be on this machine."""
        return bool(self.base) and not self.is_destroyed

    def layout(self, agent_id: str) -> Layout | None:
        """Where it lies; None when nothing was begun."""
        return Layout(Path(self.base), agent_id, self.program) if self.base else None


Held = records.Held[Record]


class Records(records.FencedRecords[Record]):
    """The records in a folder of this machine's state."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Record)

    def begun(self, installation_id: str) -> Mapping[str, Record]:
        """Of an installation's agents, those of which anything may be here."""
        return {agent: each for agent, each in self.every(installation_id) if each.has_begun}

    def bases(self) -> frozenset[Path]:
        """Every chroot base that is remembered."""
        known = (self._read(path).base for path in self._folder.glob("*.json"))
        return frozenset(Path(each) for each in known if each)

    def _may_go(self, path: Path) -> bool:
        return not self._read(path).has_begun
