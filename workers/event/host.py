"""A worker that delivers events: a pump for scale-ups, one for scale-downs, nothing else.

It offers what every backend worker does to the tasks that wake it, but has no machine: any
of these workers can deliver any event.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from urllib.parse import urlsplit

import structlog

from config.settings import Settings
from kici_scaler.domain.delivery import DeliveryKind
from kici_scaler.domain.provision_events import source_of
from kici_scaler.domain.scalers import BackendType, Scaler
from kici_scaler.errors import InvalidInput, KiciError
from kici_scaler.service import deliver, machine_life, provision, settle
from kici_scaler.service.deliver import DeliveryOrder
from kici_scaler.service.machine_life import Duties
from kici_scaler.service.runtime import Runtime
from workers.event.addresses import AddressPolicy
from workers.event.codes import SealedCodes
from workers.event.deliverer import WEBHOOKS, Deliverer
from workers.event.router import Publish, Router
from workers.event.secrets import TargetSecrets, UnusableSecrets
from workers.event.webhook import Webhooks
from workers.host.pump import Pump

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
"""Between looks whether another configuration is in force."""
UP_SLOTS = 32
DOWN_SLOTS = 16
SHARE_OF_A_TARGET = 4
"""A target may take one slot in so many, so that one that hangs leaves the others theirs."""


class EventHost:
    """Delivers the events of provisions.

    Raises:
        InvalidInput, UnreadableKeys: from the constructor, when it has no sealing keys.
    """

    def __init__(self, runtime: Runtime, settings: Settings, publish: Publish) -> None:
        if settings.seal_keys_path is None:
            raise InvalidInput(
                "KICI_SEAL_KEYS_PATH is not set; without it no claim code can be kept"
            )
        self._runtime = runtime
        self._agent_url = settings.agent_url
        self._codes = SealedCodes(settings.seal_keys_path)
        self._secrets = TargetSecrets(settings.webhook_secrets, settings.webhook_secrets_path)
        act = Deliverer(
            runtime,
            self._codes,
            Webhooks(self._secrets, AddressPolicy(settings.webhook_allowed_networks)),
            Router(publish, settings.router_queue),
            source_of(settings.installation_id),
        )
        self.starts: Pump[DeliveryOrder] = Pump("scale-up", UP_SLOTS, self._take_ups, act)
        self.destroys: Pump[DeliveryOrder] = Pump("scale-down", DOWN_SLOTS, self._take_downs, act)
        self._looked_at = Duties(-1)
        self._stopped = threading.Event()
        self._watch = threading.Thread(
            target=self._look_until_stopped, name="configuration", daemon=True
        )

    def open(self) -> None:
        """Say what will not work, now and after each reload, and take what waits already."""
        self._look_at_configuration()
        self._watch.start()
        self.starts.prime()
        self.destroys.prime()

    def site(self, _machine_id: str | None) -> EventHost:
        """Provisions have no machine; this is where all their steps are done."""
        return self

    def inspect(self, agent_ids: Sequence[str]) -> int:
        """No machine of a provision can be looked at from here."""
        return 0

    def close(self) -> None:
        """Take nothing more; let what is on its way be written down."""
        self.starts.close(wait=True)
        self.destroys.close(wait=True)
        self._stopped.set()

    def _take_ups(self, most: int) -> tuple[list[DeliveryOrder], bool]:
        begun = provision.begin(self._runtime, seal=self._codes.seal, gateway_url=self._agent_url)
        orders, left = deliver.take(
            self._runtime,
            DeliveryKind.SCALE_UP,
            most=most,
            per_target=UP_SLOTS // SHARE_OF_A_TARGET,
        )
        return orders, left or begun.left_some

    def _take_downs(self, most: int) -> tuple[list[DeliveryOrder], bool]:
        settle.settle_due(self._runtime)
        return deliver.take(
            self._runtime,
            DeliveryKind.SCALE_DOWN,
            most=most,
            per_target=DOWN_SLOTS // SHARE_OF_A_TARGET,
        )

    def _look_until_stopped(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            try:
                self._look_at_configuration()
            except KiciError as error:
                log.warning("configuration not looked at", error=str(error))

    def _look_at_configuration(self) -> None:
        """Look at every scaler that is new or was changed since the last look."""
        known = self._looked_at
        news = machine_life.duties(self._runtime, BackendType.EVENT, None, known=known.revision_id)
        if news is None:
            return
        for scaler in news.scalers:
            if scaler not in known.scalers:
                self._look_at(scaler)
        self._looked_at = news

    def _look_at(self, scaler: Scaler) -> None:
        url = scaler.orchestrator_url or self._agent_url
        if _is_here(url) and not all(map(_is_here, scaler.provisioning_targets)):
            log.warning(
                "agents of provisions are told to connect to this machine's own loopback",
                scaler=scaler.name,
                url=url,
                hint="set KICI_ORCHESTRATOR_URL, or the scaler's orchestratorUrl",
            )
        for target in scaler.provisioning_targets:
            if target.startswith(WEBHOOKS):
                self._look_for_secret(scaler, target)

    def _look_for_secret(self, scaler: Scaler, target: str) -> None:
        try:
            self._secrets.of(target)
        except UnusableSecrets as error:
            log.error(str(error), scaler=scaler.name, target=target, hint=error.hint)


def _is_here(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
