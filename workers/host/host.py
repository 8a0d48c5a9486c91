"""A backend worker's process: its machine, its backend, and a pump for each kind of step."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import structlog

from config.settings import Settings
from kici_scaler.domain.scalers import BackendType
from kici_scaler.errors import KiciError
from kici_scaler.service import machine_life, start
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.engine import DatabaseUnreachable
from kici_scaler.store.machines import Announcement
from workers.contract import Backend, BackendContext
from workers.fleet.fleet import Fleet
from workers.fleet.ports import FleetPorts
from workers.host.addresses import DatabaseAddresses
from workers.host.site import Plot, Site
from workers.ledger import MachineLedger, ledger_directory
from workers.machine import Machine, local_machine
from workers.registry import open_backend

log = structlog.get_logger(__name__)

BEAT_SECONDS = 5.0
STOCK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class HostOptions:
    """How one backend worker is run.

    `stand_ins` maps a backend type to the one used instead of it (a rehearsal on the null
    backend); `serves` limits the worker to some scalers, None is all of its type.
    """

    backend_type: BackendType
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    serves: tuple[str, ...] | None = None
    fleet: FleetPorts | None = None
    """How machines that the configuration lists are reached; None drives none."""


class BackendHost:
    """Runs the steps of one backend type on this worker's machine, and on those it reaches."""

    def __init__(self, runtime: Runtime, settings: Settings, options: HostOptions) -> None:
        self._runtime = runtime
        self._options = options
        self._machine = local_machine(settings.machine_id)
        kind = options.backend_type
        context = BackendContext(
            installation_id=settings.installation_id,
            machine=self._machine,
            state_dir=settings.state_dir,
            ambient=MappingProxyType(dict(os.environ)),
            addresses=DatabaseAddresses(runtime, self._machine.id),
        )
        self.backend: Backend = open_backend(kind.value, context, options.stand_ins)
        ledger = MachineLedger(
            ledger_directory(os.environ), settings.installation_id, self._machine.boot_id
        )
        place = self._machine.id if kind.is_local else None
        self._site = Site(
            runtime, settings, self.backend, Plot(kind, place, options.serves, ledger)
        )
        self.starts, self.destroys = self._site.starts, self._site.destroys
        self._preparer, self._stocktaker = self._site.preparer, self._site.take_stock
        self._fleet = (
            None
            if options.fleet is None
            else Fleet(runtime, settings, context, options.fleet, options.serves)
        )
        self._announcement = _announcement(self._machine, options) if kind.is_local else None
        self._stopped = threading.Event()
        self._regular = (
            threading.Thread(target=self._beat_until_stopped, name="beat", daemon=True),
            threading.Thread(target=self._take_stock_until_stopped, name="stock", daemon=True),
            threading.Thread(target=self._prepare_until_stopped, name="prepare", daemon=True),
        )

    def open(self) -> None:
        """Prepare the backend, announce the machine, and take what waits already.

        Raises:
            BackendError: nothing could be prepared, so this worker is of no use.
        """
        self._preparer.begin()
        if self._announcement is not None:
            machine_life.announce(self._runtime, self._announcement, self._preparer.degraded)
        for thread in self._regular:
            thread.start()
        self._site.prime()
        if self._fleet is not None:
            self._fleet.open()

    def site(self, machine_id: str | None) -> Site | None:
        """Where the steps of that machine are done; None when this worker does not drive it."""
        if machine_id is None or machine_id == self._machine.id:
            return self._site
        return None if self._fleet is None else self._fleet.site(machine_id)

    def close(self) -> None:
        """Take nothing more; let what runs be applied. Agents are left alone."""
        if self._fleet is not None:
            self._fleet.close()
        self._site.close(wait=True)
        self._stopped.set()

    def _beat_until_stopped(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            try:
                self._beat()
            except DatabaseUnreachable as error:
                log.warning("no heartbeat while the database is away", error=str(error))
            except Exception:  # a thread's last line: without it the machine counts as gone
                log.exception("heartbeat failed")

    def _take_stock_until_stopped(self) -> None:
        while not self._stopped.wait(STOCK_SECONDS):
            try:
                self._stocktaker()
            except KiciError as error:
                log.warning("no stock taken", error=str(error))
            except Exception:  # a thread's last line: without it orphans stay for ever
                log.exception("taking stock failed unexpectedly")

    def _prepare_until_stopped(self) -> None:
        """Beside the heartbeat, which must not wait for a runtime that is slow to answer."""
        told = self._preparer.degraded
        while not self._stopped.wait(BEAT_SECONDS):
            try:
                self._site.inspect(())
                self._preparer.look()
                if self._preparer.degraded != told:
                    told = self._tell(self._preparer.degraded)
            except KiciError as error:
                log.warning("not prepared for the configuration yet", error=str(error))
            except Exception:  # a thread's last line: what a backend should not raise
                log.exception("preparing failed unexpectedly")

    def _tell(self, degraded: Mapping[str, str]) -> Mapping[str, str]:
        if self._announcement is not None:
            machine_life.report(self._runtime, self._announcement, degraded)
        return degraded

    def _beat(self) -> None:
        tokens = self._site.tokens
        if self._announcement is not None:
            machine_life.beat(
                self._runtime,
                self._announcement,
                tokens=tokens,
                degraded=self._preparer.degraded,
            )
        elif tokens:
            start.extend_leases(self._runtime, tokens)


def _announcement(machine: Machine, options: HostOptions) -> Announcement:
    platform = machine.platform
    return Announcement(
        machine_id=machine.id,
        backend_type=options.backend_type.value,
        boot_id=machine.boot_id,
        os=None if platform is None else platform.os.value,
        arch=None if platform is None else platform.arch.value,
        cpu_millis=machine.cpu_millis,
        memory_bytes=machine.memory_bytes,
        serves=options.serves,
    )
