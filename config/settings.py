"""What the environment tells a process; read once at the edge, then handed in."""

from __future__ import annotations

import socket
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal

from platformdirs import user_state_path
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

Network = IPv4Network | IPv6Network


def _hostname() -> str:
    return socket.gethostname().split(".")[0].lower() or "localhost"


class Settings(BaseSettings):
    """Environment of every process, prefix `KICI_`.

    Durations are in the unit their name carries. Values that change on a running
    cluster (windows, time-outs, retention) are live settings in the database instead.
    """

    model_config = SettingsConfigDict(
        env_prefix="KICI_", frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    database_url: SecretStr = SecretStr("")
    """Postgres, `postgresql://user:password@host:port/database`; `up` brings its own when unset."""

    redis_url: SecretStr = SecretStr("")
    """Redis of the broker, `redis://:password@host:port/0`; `up` brings its own when unset."""

    lock_redis_url: SecretStr | None = None
    """Redis for the reservation mutex and wake-ups; the broker's own when unset."""

    scaler_config_path: Path | None = None
    """The scaler file, `scalers.yaml`."""

    scaler_config_dir: Path | None = None
    """A folder of more scaler files, merged into the first."""

    host: str = "127.0.0.1"
    """Address the gateway listens on."""

    port: int = Field(default=4000, ge=1, le=65535)
    """Port the gateway listens on."""

    orchestrator_url: str | None = None
    """URL handed to agents when their scaler names none."""

    installation_id: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")
    """Stamped on all compute, so that installations sharing a machine leave each other alone."""

    machine_id: str = Field(default_factory=_hostname, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """What local compute is pinned to; the short host name when unset."""

    state_dir: Path = Field(default_factory=lambda: user_state_path("kici-scaler"))
    """Folder of this machine's own state; below the user's XDG state folder when unset."""

    seal_keys_path: Path | None = None
    """File of the private keys that open sealed payloads."""

    log_format: Literal["json", "human"] = "json"
    """One JSON object a line, or lines for a terminal."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least severe messages that are logged."""

    reservation_mutex: bool = True
    """Off, every admission goes straight to the database lock; nothing else changes."""

    events_task: str | None = None
    """Name of a dispatcher's Celery task that gets lifecycle events as `events=[...]`."""
    events_queue: str = "events"
    """The queue that the dispatcher's workers consume for it."""

    webhook_secrets: SecretStr | None = None
    """Secrets that events to provisioning targets are signed with, `{"https://…": "whsec_…"}`."""

    webhook_secrets_path: Path | None = None
    """A file of the same, for its owner's eyes only; read anew when it changes."""

    webhook_allowed_networks: Annotated[tuple[Network, ...], NoDecode] = Field(
        default_factory=tuple
    )
    """Networks, by commas, that webhooks may reach although they are not public (10.1.0.0/16)."""

    router_queue: str = "event.router"
    """Queue of the dispatcher's router, which gets events to `organisation/workflow` targets."""

    ready_file: Path | None = None
    """A role creates this file once it does its work."""

    @field_validator("webhook_allowed_networks", mode="before")
    @classmethod
    def _networks_by_commas(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return [ip_network(part.strip()) for part in value.split(",") if part.strip()]

    @field_validator("database_url")
    @classmethod
    def _driver_is_named(cls, value: SecretStr) -> SecretStr:
        """Plain `postgresql://` would select another driver in SQLAlchemy 2.1."""
        url = value.get_secret_value()
        for scheme in ("postgresql://", "postgres://"):
            if url.startswith(scheme):
                return SecretStr("postgresql+psycopg2://" + url.removeprefix(scheme))
        return value

    @property
    def agent_url(self) -> str:
        """URL that agents connect to unless their scaler names another."""
        return self.orchestrator_url or f"ws://127.0.0.1:{self.port}/v1/agents"

    @property
    def beat_sign_path(self) -> Path:
        """What a beat touches with each task that the broker took from it."""
        return self.state_dir / "beat-sign"

    @property
    def mutex_url(self) -> str:
        """Redis URL of the reservation mutex and the wake-ups."""
        return (self.lock_redis_url or self.redis_url).get_secret_value()


@lru_cache(maxsize=1)
def settings() -> Settings:
    """This process's settings, read from the environment at the first call."""
    return Settings()
