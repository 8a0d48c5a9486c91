"""One machine of a fleet: asked for signs of life, prepared, its stock taken, its pumps primed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import structlog

from config.settings import Settings
from kici_scaler.domain.scalers import BackendType
from kici_scaler.errors import KiciError
from kici_scaler.service import fleet, machine_life
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.fleet import Driven
from kici_scaler.store.machines import Announcement
from workers.contract import BackendContext, Deadline
from workers.errors import BackendError
from workers.fleet.health import MOST_SKEW_SECONDS, Health
from workers.fleet.ports import OpenMachine, SignOfLife
from workers.host.site import Plot, Site
from workers.machine import Machine, MachineKind, platform_of

log = structlog.get_logger(__name__)

PROBE_SECONDS = 5.0
"""Between signs of life."""
PATIENCE_SECONDS = 10.0
"""How long one may take."""
LONGEST_SILENCE_SECONDS = 40.0
"""For a look that does not even end; longer than any that does."""
STOCK_SECONDS = 60.0
PRIME_SECONDS = 15.0
"""Rows are looked at this often without a hint; hints come at once."""


@dataclass(slots=True)
class _Due:
    """Moments of the monotonic clock at which something is due again."""

    stock: float = 0.0
    prime: float = 0.0


class Keeper:
    """Looks after one machine, in two threads of its own: a look must not wait for the work."""

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        context: BackendContext,
        open_machine: OpenMachine,
        driven: Driven,
    ) -> None:
        self.driven = driven
        self.name = driven.machine_id
        self.health = Health()
        self.serves: tuple[str, ...] = ()
        self.is_empty = False
        """Whether the last stocktaking found nothing there."""
        self._runtime = runtime
        here = replace(context, machine=_place(driven))
        self._backend = open_machine(here, driven.target)
        self.site = Site(
            runtime,
            settings,
            self._backend,
            Plot(
                BackendType.BARE_METAL,
                self.name,
                fleet_machine=self.name,
                is_open=lambda: self.silence is None,
                now=self._now,
            ),
        )
        self._announced: Announcement | None = None
        self._told: object = None
        self._due = _Due()
        self._heard_at = time.monotonic()
        self._stopped = threading.Event()
        self._work = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._look_until_stopped, name=f"look {self.name}", daemon=True
            ),
            threading.Thread(
                target=self._work_until_stopped, name=f"keep {self.name}", daemon=True
            ),
        ]

    @property
    def is_introduced(self) -> bool:
        """Whether the cluster was told what it is since it answers."""
        return self._announced is not None

    @property
    def silence(self) -> str | None:
        """Why it counts as silent; None while it answers."""
        if not self.health.answers:
            return self.health.why
        seconds = time.monotonic() - self._heard_at
        if seconds > LONGEST_SILENCE_SECONDS:
            return f"no sign of life for {seconds:.0f} s"
        return None

    def open(self) -> None:
        """Begin; nothing is connected before the first look."""
        for each in self._threads:
            each.start()

    def close(self, *, wait: bool) -> None:
        """Take nothing more; agents are left alone."""
        self._stopped.set()
        self._work.set()
        self.site.close(wait=wait)
        self._backend.close()

    def _now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.health.skew_seconds)

    def _look_until_stopped(self) -> None:
        while not self._stopped.is_set():
            try:
                self._look()
            except KiciError as error:
                log.warning("machine not looked after", machine=self.name, error=str(error))
            except Exception:  # a thread's last line: without it the machine counts as gone
                log.exception("looking at a machine failed unexpectedly", machine=self.name)
            self._stopped.wait(PROBE_SECONDS)

    def _look(self) -> None:
        before = self.health
        try:
            sign = self._ask()
        except BackendError as error:
            self.health = before.after_miss(error)
            if before.answers and not self.health.answers:
                log.error("machine out of reach", machine=self.name, why=self.health.why)
            return
        if abs(self.health.skew_seconds) > MOST_SKEW_SECONDS and before.boot_id == "":
            log.warning(
                "machine's clock is off", machine=self.name, seconds=self.health.skew_seconds
            )
        if self.health.came_back(before):
            log.info("machine answers", machine=self.name, boot=sign.boot_id)
            self._due = _Due()
        self._announce(sign)
        self._work.set()

    def _ask(self) -> SignOfLife:
        began = time.time()
        sign = self._backend.hello(Deadline.after(PATIENCE_SECONDS))
        middle = (began + time.time()) / 2
        self._heard_at = time.monotonic()
        self.health = self.health.after_answer(sign.boot_id, sign.clock - middle)
        return sign

    def _announce(self, sign: SignOfLife) -> None:
        """Say what it is when that is news, or nobody was told since it was silent."""
        said = _announcement(self.name, self.serves, sign)
        if said != self._announced and fleet.announce(self._runtime, said):
            self._announced = said

    def forget_announced(self) -> None:
        """It fell silent, as far as the others know: it has to be announced again."""
        self._announced = None

    def _work_until_stopped(self) -> None:
        while not self._stopped.is_set():
            self._work.wait()
            self._work.clear()
            try:
                if not self._stopped.is_set() and self.silence is None:
                    self._look_after()
            except KiciError as error:
                log.warning("machine not looked after", machine=self.name, error=str(error))
            except Exception:  # a thread's last line: what a backend should not raise
                log.exception("looking after a machine failed unexpectedly", machine=self.name)

    def _look_after(self) -> None:
        self.site.preparer.look()
        self._report()
        now = time.monotonic()
        if now >= self._due.prime:
            self._due.prime = now + PRIME_SECONDS
            self.site.prime()
        if now >= self._due.stock:
            self._due.stock = now + STOCK_SECONDS
            stock = self.site.take_stock()
            self.is_empty = stock.is_whole and stock.found == 0

    def _report(self) -> None:
        """Say which scalers cannot run there, when that changed or nobody was told."""
        if self._announced is None:
            return
        told = (self.site.preparer.degraded, self._announced)
        if told != self._told:
            machine_life.report(self._runtime, self._announced, self.site.preparer.degraded)
            self._told = told


def _place(driven: Driven) -> Machine:
    """What is known of a machine before it was asked."""
    address = str(driven.target.get("address", driven.machine_id))
    return Machine(driven.machine_id, MachineKind.SSH, address, "", None, 0, 0)


def _announcement(name: str, serves: tuple[str, ...], sign: SignOfLife) -> Announcement:
    platform = platform_of(sign.system, sign.machine)
    return Announcement(
        machine_id=name,
        backend_type=BackendType.BARE_METAL.value,
        boot_id=sign.boot_id,
        os=None if platform is None else platform.os.value,
        arch=None if platform is None else platform.arch.value,
        cpu_millis=sign.cpus * 1000,
        memory_bytes=sign.memory_bytes,
        serves=serves,
    )
