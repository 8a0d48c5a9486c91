"""Reserving from a shared budget: count, decide and write under one file lock."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kici_scaler.domain.resources import Need
from kici_scaler.domain.scalers import Cap
from kici_scaler.errors import Unavailable
from workers.ledger.compute import Probe, process_is_gone

VERSION = 1
LOCK_SECONDS = 10.0
PROBES: Mapping[str, Probe] = MappingProxyType({"bare-metal": process_is_gone})


class LedgerUnavailable(Unavailable):
    """The machine's ledger cannot be read, written or locked; nothing was reserved."""


class Reservation(BaseModel):
    """One agent's share; `compute` is empty until it is known what was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    installation: str
    agent_id: str
    boot_id: str
    cpu_millis: int
    memory_bytes: int
    kind: str
    compute: dict[str, str] = Field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Whose share it is: installation and agent."""
        return self.installation, self.agent_id


class SharedCap(BaseModel):
    """What one installation says the pool holds at most."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu_millis: int | None = None
    memory_bytes: int | None = None


class PoolFile(BaseModel):
    """The content of a pool's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = VERSION
    caps: dict[str, SharedCap] = Field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()

    def smallest_cap(self) -> Cap:
        """The smallest cap of each dimension that any sharer declares."""
        cpus = [each.cpu_millis for each in self.caps.values() if each.cpu_millis is not None]
        memory = [each.memory_bytes for each in self.caps.values() if each.memory_bytes is not None]
        return Cap(min(cpus, default=None), min(memory, default=None))

    def used(self, *, besides: str | None = None) -> Need:
        """What is reserved; without the shares of the installation `besides`."""
        counted = [each for each in self.reservations if each.installation != besides]
        return Need(
            sum(each.cpu_millis for each in counted), sum(each.memory_bytes for each in counted)
        )


@dataclass(frozen=True, slots=True)
class Granted:
    """The share is reserved."""


@dataclass(frozen=True, slots=True)
class TurnedDown:
    """There is no room; `foreign` is what other installations hold."""

    cap: Cap
    foreign: Need


_Change = Callable[[Reservation], Reservation | None]


@dataclass(frozen=True, slots=True)
class MachineLedger:
    """The ledgers of one machine's pools, as one installation uses them.

    Args:
        directory: the folder that every installation of this machine uses.
        boot_id: rows of another boot name compute that is gone.
        probes: how to tell, by kind of compute, that it is provably gone.
    """

    directory: Path
    installation: str
    boot_id: str
    probes: Mapping[str, Probe] = field(default_factory=lambda: PROBES)

    def reserve(
        self, pool: str, cap: Cap, agent_id: str, kind: str, need: Need
    ) -> Granted | TurnedDown:
        """Reserve an agent's share; repeated for the same agent it stays one share.

        Raises:
            LedgerUnavailable: nothing was reserved.
        """
        mine = Reservation(
            installation=self.installation,
            agent_id=agent_id,
            boot_id=self.boot_id,
            cpu_millis=need.cpu_millis,
            memory_bytes=need.memory_bytes,
            kind=kind,
        )
        with self._locked(pool):
            stored = self._read(pool)
            caps = stored.caps | {
                self.installation: SharedCap(
                    cpu_millis=cap.cpu_millis, memory_bytes=cap.memory_bytes
                )
            }
            living = tuple(each for each in stored.reservations if not self._is_gone(each))
            earlier = next((each for each in living if each.key == mine.key), None)
            others = tuple(each for each in living if each.key != mine.key)
            found = PoolFile(caps=caps, reservations=others)
            if earlier is None and _exceeds(found, need):
                self._write(pool, found)
                return TurnedDown(found.smallest_cap(), found.used(besides=self.installation))
            kept = mine if earlier is None else mine.model_copy(update={"compute": earlier.compute})
            self._write(pool, found.model_copy(update={"reservations": (*others, kept)}))
            return Granted()

    def name_compute(self, pool: str, agent_id: str, compute: Mapping[str, str]) -> None:
        """Say what an agent's share stands for, so that anybody can see it end."""
        self._change(
            pool,
            lambda each: (
                each.model_copy(update={"compute": dict(compute)})
                if each.key == (self.installation, agent_id)
                else each
            ),
        )

    def release(self, pool: str, agent_id: str) -> None:
        """Give an agent's share back; another installation's of the same id stays."""
        self._change(pool, lambda each: None if each.key == (self.installation, agent_id) else each)

    def used(self, pool: str) -> Need:
        """What is reserved in a pool now, without what is provably gone."""
        with self._locked(pool):
            stored = self._read(pool)
        living = tuple(each for each in stored.reservations if not self._is_gone(each))
        return stored.model_copy(update={"reservations": living}).used()

    def _change(self, pool: str, change: _Change) -> None:
        with self._locked(pool):
            stored = self._read(pool)
            changed = tuple(
                new for each in stored.reservations if (new := change(each)) is not None
            )
            if changed != stored.reservations:
                self._write(pool, stored.model_copy(update={"reservations": changed}))

    def _is_gone(self, reservation: Reservation) -> bool:
        if reservation.boot_id != self.boot_id:
            return True
        probe = self.probes.get(reservation.kind)
        return bool(reservation.compute) and probe is not None and probe(reservation.compute)

    @contextmanager
    def _locked(self, pool: str) -> Iterator[None]:
        lock = FileLock(self._path(pool, ".lock"), timeout=LOCK_SECONDS)
        try:
            lock.acquire()
        except (Timeout, OSError) as error:
            raise LedgerUnavailable(
                f"the ledger of machine pool `{pool}` could not be locked: {error}"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def _path(self, pool: str, suffix: str) -> Path:
        # Percent-encoding keeps any pool name one file name.
        name = "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):02x}" for c in pool)
        return self.directory / f"{name}{suffix}"

    def _read(self, pool: str) -> PoolFile:
        path = self._path(pool, ".json")
        try:
            return PoolFile.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return PoolFile()
        except (ValidationError, OSError) as error:
            raise LedgerUnavailable(
                f"the ledger of machine pool `{pool}` cannot be read: {path}",
                hint="stop the installations on this machine, then remove the file",
            ) from error

    def _write(self, pool: str, content: PoolFile) -> None:
        path = self._path(pool, ".json")
        try:
            with tempfile.NamedTemporaryFile(
                "w", dir=self.directory, prefix=f".{path.name}.", delete=False
            ) as file:
                file.write(content.model_dump_json())
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).replace(path)
        except OSError as error:
            raise LedgerUnavailable(
                f"the ledger of machine pool `{pool}` cannot be written: {error}"
            ) from error


def _exceeds(found: PoolFile, need: Need) -> bool:
    used, cap = found.used(), found.smallest_cap()
    return (cap.cpu_millis is not None and used.cpu_millis + need.cpu_millis > cap.cpu_millis) or (
        cap.memory_bytes is not None and used.memory_bytes + need.memory_bytes > cap.memory_bytes
    )
