"""What a backend was told to do, one line each, by any number of processes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Notes:
    """A file to which each start adds its job and the moment."""

    path: Path

    def opened(self) -> int:
        """A descriptor for `note`; what is written by it goes to the end, whoever else writes."""
        return os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    @staticmethod
    def note(descriptor: int, job_id: str | None) -> None:
        """A start was asked for."""
        os.write(descriptor, f"{time.time()} {job_id}\n".encode())

    def started_at(self) -> dict[str, float]:
        """When the start for each job was first asked for, in epoch seconds."""
        lines = reversed(self.path.read_text().splitlines())
        return {job: float(at) for at, job in map(str.split, lines)}

    def count(self) -> int:
        """For how many jobs a start was asked for."""
        return len({line.rpartition(b" ")[2] for line in self.path.read_bytes().splitlines()})

    def clear(self) -> None:
        """Forget all of them."""
        self.path.write_bytes(b"")
