"""How other commands find the instance that runs here.

The running instance writes `local.json` into its data folder, and the folder's path into the
user's state folder; both go when it stops. After a crash they stay, so a reader also asks
whether the process that wrote them is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, field_serializer

from kici_scaler.embedded.folder import DataFolder, user_home
from kici_scaler.embedded.secrets import write_secret

PROFILE: Final = "local.json"
POINTER: Final = "local-instance"


class LocalProfile(BaseModel):
    """Where the processes of a running local instance are.

    Attributes:
        data_dir: its data folder.
        pid: process that supervises it.
        started: that process's start, seconds since the epoch, to tell it from a later one.
        host: address that its gateway listens on.
        gateway_port: its gateway's port, also when the gateway itself runs elsewhere.
        gateway_url: base URL of the HTTP interface, without a trailing slash; None when the
            gateway is not one of its roles.
        flower_url: base URL of Flower; None when it is not one of its roles.
        api_key_path: file with an operator's key for the gateway.
        dispatcher_key_path: file with a key that may only ask for agents.
        flower_password_path: file with the password of Flower's user `kici`.
        seal_keys_path: file with the private keys that open sealed payloads.
        database_url, redis_url: with passwords.
        installation_id: names what this instance makes on machines.
    """

    model_config = ConfigDict(frozen=True)

    data_dir: Path
    pid: int
    started: float
    host: str
    gateway_port: int
    gateway_url: str | None
    flower_url: str | None
    api_key_path: Path
    dispatcher_key_path: Path
    flower_password_path: Path
    seal_keys_path: Path
    database_url: SecretStr
    redis_url: SecretStr
    installation_id: str

    def environment(self) -> dict[str, str]:
        """Settings of a process that belongs to this instance."""
        return {
            "KICI_DATABASE_URL": self.database_url.get_secret_value(),
            "KICI_REDIS_URL": self.redis_url.get_secret_value(),
            "KICI_INSTALLATION_ID": self.installation_id,
            "KICI_STATE_DIR": str(DataFolder(self.data_dir).machine),
            "KICI_SEAL_KEYS_PATH": str(self.seal_keys_path),
            "KICI_HOST": self.host,
            "KICI_PORT": str(self.gateway_port),
        }

    @field_serializer("database_url", "redis_url", when_used="json")
    def _in_clear(self, value: SecretStr) -> str:
        """The file is for its owner's eyes only."""
        return value.get_secret_value()


def own_start() -> float:
    """When this process started, seconds since the epoch."""
    return psutil.Process().create_time()


def announce(profile: LocalProfile) -> None:
    """Let other commands find this instance."""
    write_secret(profile.data_dir / PROFILE, profile.model_dump_json(indent=2))
    pointer = user_home() / POINTER
    pointer.parent.mkdir(parents=True, exist_ok=True)
    write_secret(pointer, str(profile.data_dir))


def withdraw(data_dir: Path) -> None:
    """Undo `announce`; another instance's pointer stays."""
    (data_dir / PROFILE).unlink(missing_ok=True)
    if _pointed_at() == data_dir:
        (user_home() / POINTER).unlink(missing_ok=True)


def load_profile(data_dir: Path | None = None) -> LocalProfile | None:
    """The instance that runs on `data_dir`, or the one started last; None when none runs."""
    folder = data_dir or _pointed_at()
    if folder is None:
        return None
    try:
        profile = LocalProfile.model_validate_json((folder / PROFILE).read_text())
    except (OSError, ValidationError):
        return None
    return profile if _runs(profile) else None


def _pointed_at() -> Path | None:
    try:
        return Path((user_home() / POINTER).read_text().strip())
    except OSError:
        return None


def _runs(profile: LocalProfile) -> bool:
    try:
        return abs(psutil.Process(profile.pid).create_time() - profile.started) < 1.0
    except psutil.NoSuchProcess:
        return False
