"""What an installation is asked to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kici_scaler.embedded.ports import LOOPBACK


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start, and where.

    Attributes:
        roles: names as in `programs.ROLES`; None: all, with the backends that the file names.
        scaler_file: `scalers.yaml` to activate; None keeps what is active.
        scaler_directory: further files of the configuration.
        host: address that the gateway and Flower listen on.
        gateway_port, flower_port: 0 picks a free one and keeps to it.
        database_url, redis_url: servers of somebody else instead of the embedded ones.
        durable: False trades safety against power loss for speed.
        environment: further variables for every role.
        concurrency: slots of a worker, by role, where not the default.
        announced: whether other commands find it (see `profile`).
    """

    roles: tuple[str, ...] | None = None
    scaler_file: Path | None = None
    scaler_directory: Path | None = None
    host: str = LOOPBACK
    gateway_port: int = 0
    flower_port: int = 0
    database_url: str | None = field(default=None, repr=False)
    redis_url: str | None = field(default=None, repr=False)
    durable: bool = True
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    concurrency: Mapping[str, int] = field(default_factory=dict)
    announced: bool = False
