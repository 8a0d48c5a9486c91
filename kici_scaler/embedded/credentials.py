"""Keys, passwords and the name of an installation: made once, kept in its data folder."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.settings import Settings
from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.embedded.secrets import read_or_make_secret, secret_path
from kici_scaler.sealing import ensure_keys, load_keys
from kici_scaler.service import keys
from kici_scaler.service.runtime import Runtime

API_KEY: Final = "api-key"
DISPATCHER_KEY: Final = "dispatcher-key"
FLOWER_PASSWORD: Final = "flower-password"
SEAL_KEYS: Final = "seal-keys.json"
INSTALLATION_ID: Final = "installation-id"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files of an installation's secrets, each for its owner's eyes only.

    Attributes:
        installation_id: names what this installation makes on machines.
        api_key: an operator's key for the gateway, which may do everything.
        dispatcher_key: a key that may only ask for agents.
        seal_keys: private keys that open sealed payloads.
    """

    installation_id: str
    api_key: Path
    dispatcher_key: Path
    flower_password: Path
    seal_keys: Path


def make_credentials(home: Path, settings: Settings) -> Credentials:
    """Read them from the data folder, making what is missing.

    Raises:
        UnreadableKeys: the sealing keys, the operator's own or these, cannot be used.
    """
    read_or_make_secret(home, API_KEY, lambda: keys.new_token(KeyScope.OPERATOR))
    read_or_make_secret(home, DISPATCHER_KEY, lambda: keys.new_token(KeyScope.DISPATCHER))
    read_or_make_secret(home, FLOWER_PASSWORD)
    if settings.seal_keys_path is not None:
        load_keys(settings.seal_keys_path)
    else:
        ensure_keys(secret_path(home, SEAL_KEYS))
    return Credentials(
        installation_id=_installation_id(home, settings),
        api_key=secret_path(home, API_KEY),
        dispatcher_key=secret_path(home, DISPATCHER_KEY),
        flower_password=secret_path(home, FLOWER_PASSWORD),
        seal_keys=settings.seal_keys_path or secret_path(home, SEAL_KEYS),
    )


def admit_keys(runtime: Runtime, credentials: Credentials) -> None:
    """Let the database know the keys; one that was revoked stays so.

    Raises:
        Conflict: a live key of another folder has the same name.
        DatabaseUnreachable.
    """
    own = credentials.installation_id
    for scope, name, path in (
        (KeyScope.OPERATOR, own, credentials.api_key),
        (KeyScope.DISPATCHER, f"{own}-dispatcher", credentials.dispatcher_key),
    ):
        keys.ensure(runtime, scope=scope, name=name, token=path.read_text().strip())


def _installation_id(home: Path, settings: Settings) -> str:
    if "installation_id" in settings.model_fields_set:
        return settings.installation_id
    path = home / INSTALLATION_ID
    if not path.exists():
        path.write_text(f"local-{uuid.uuid4().hex[:12]}\n")
    return path.read_text().strip()
