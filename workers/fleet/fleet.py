"""The machines that one worker drives: claimed, beaten for, left to others."""

from __future__ import annotations

import threading
from collections.abc import Collection

import structlog

from config.settings import Settings
from kici_scaler.service import fleet
from kici_scaler.service.runtime import Runtime
from kici_scaler.store.engine import DatabaseUnreachable
from kici_scaler.store.fleet import Driven
from workers.contract import BackendContext
from workers.fleet.keeper import Keeper
from workers.fleet.ports import FleetPorts
from workers.host.site import Site

log = structlog.get_logger(__name__)

BEAT_SECONDS = 5.0


class Fleet:
    """Drives the machines that the configuration lists, as far as no other worker does.

    Args:
        serves: the scalers that this worker is limited to; None is every scaler.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        context: BackendContext,
        ports: FleetPorts,
        serves: Collection[str] | None,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._context = context
        self._ports = ports
        self._serves = serves
        self._keepers: dict[str, Keeper] = {}
        self._warned: frozenset[str] = frozenset()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat_until_stopped, name="fleet", daemon=True)

    def open(self) -> None:
        """Begin; machines are reached in the background."""
        self._thread.start()

    def site(self, machine_id: str) -> Site | None:
        """Where the steps of a machine are done; None when this worker does not drive it."""
        keeper = self._keepers.get(machine_id)
        return None if keeper is None else keeper.site

    def close(self) -> None:
        """Take nothing more, let what runs be applied, and leave the machines to others."""
        self._stopped.set()
        if self._thread.ident is not None:  # a worker may be stopped before it has opened
            self._thread.join(timeout=BEAT_SECONDS)
        keepers = dict(self._keepers)
        for keeper in keepers.values():
            keeper.close(wait=True)
        try:
            fleet.let_go(self._runtime, keepers)
        except DatabaseUnreachable as error:
            log.info("claims left to run out", error=str(error))

    def _beat_until_stopped(self) -> None:
        while not self._stopped.is_set():
            try:
                self.beat()
            except DatabaseUnreachable as error:
                log.warning("fleet not beaten for while the database is away", error=str(error))
            except Exception:  # a thread's last line: without it all its machines count as gone
                log.exception("fleet not beaten for")
            self._stopped.wait(BEAT_SECONDS)

    def beat(self) -> None:
        """Claim, take over, let go; then say which machines answer."""
        claimed = fleet.claim(self._runtime, self._serves)
        self._warn_of_taken(frozenset(claimed.taken))
        wanted = {each.machine_id: each for each in claimed.driven}
        for name, keeper in list(self._keepers.items()):
            if name not in wanted or keeper.driven.target != wanted[name].target:
                self._drop(name)
        for name, driven in wanted.items():
            keeper = self._keepers.get(name) or self._take_on(driven)
            keeper.driven = driven
            keeper.serves = claimed.serves.get(name, ())
        self._say()
        self._forget_gone()

    def _say(self) -> None:
        """Tell the cluster who answers; a machine that fell silent has to introduce itself anew."""
        heard = {name: each.silence for name, each in self._keepers.items()}
        silent = {name: why for name, why in heard.items() if why is not None}
        for name in silent:
            self._keepers[name].forget_announced()
        fleet.beat(
            self._runtime,
            answering=[
                name
                for name, each in self._keepers.items()
                if name not in silent and each.is_introduced
            ],
            silent=silent,
            tokens=[token for each in self._keepers.values() for token in each.site.tokens],
        )

    def _take_on(self, driven: Driven) -> Keeper:
        log.info("driving a machine", machine=driven.machine_id, taken_over=driven.was_taken_over)
        keeper = Keeper(
            self._runtime, self._settings, self._context, self._ports.open_machine, driven
        )
        self._keepers[driven.machine_id] = keeper
        self._ports.queues.consume(driven.machine_id)
        keeper.open()
        return keeper

    def _drop(self, name: str) -> None:
        """It is another's, or is reached in another way from now on."""
        log.info("no longer driving a machine", machine=name)
        keeper = self._keepers.pop(name)
        self._ports.queues.leave(name)
        keeper.close(wait=False)

    def _forget_gone(self) -> None:
        for name, keeper in list(self._keepers.items()):
            is_over = not keeper.driven.is_listed and keeper.is_empty
            if is_over and fleet.forget_empty(self._runtime, name):
                self._drop(name)

    def _warn_of_taken(self, taken: frozenset[str]) -> None:
        for name in sorted(taken - self._warned):
            log.error(
                "a machine cannot be driven: its name is that of a worker's own host",
                machine=name,
                hint="give the machine another `name`",
            )
        self._warned = taken
