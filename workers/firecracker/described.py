"""What lies beside a microVM and tells whose it is, without anything else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kici_scaler.domain.guest_addresses import GuestAddress
from workers.compute import FoundCompute
from workers.contract import SpawnOrder
from workers.errors import NotDone
from workers.firecracker.layout import DESCRIPTION, Layout, homes_in
from workers.records import write_whole


@dataclass(frozen=True, slots=True)
class Description:
    """One microVM, by its own file. It holds no secret.

    Attributes:
        created_at: epoch seconds.
        access: what it may reach, so that rules that were lost can be made again.
    """

    installation_id: str
    scaler: str
    agent_id: str
    job_id: str | None
    run_id: str | None
    lease_token: int
    created_at: float
    bridge: str
    cidr: str
    address: str
    mac: str
    tap: str
    access: Mapping[str, Any] = field(default_factory=dict)

    @property
    def guest(self) -> GuestAddress:
        """What it has of its network."""
        return GuestAddress(self.address, self.mac, self.tap)

    def with_token(self, token: int) -> Description:
        """The same, claimed with another lease token."""
        return replace(self, lease_token=token)


def write(layout: Layout, description: Description) -> None:
    """Write it down, the whole of it or nothing. Raises `NotDone`."""
    write_whole(layout.description, asdict(description))


def read(home: Path) -> Description | None:
    """What is written in that folder; None when nothing is.

    Raises:
        NotDone: it is there and cannot be read.
    """
    path = home / DESCRIPTION
    try:
        return Description(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise NotDone(f"{path} cannot be read: {error}") from error


def every(bases: frozenset[Path]) -> Iterator[tuple[Path, Description | None]]:
    """Every microVM's folder below some bases, with what it says of itself.

    Raises:
        NotDone: a base cannot be listed.
    """
    for base in sorted(bases):
        try:
            homes = list(homes_in(base))
        except OSError as error:
            raise NotDone(f"{base} cannot be listed: {error}") from error
        for home in homes:
            yield home, read(home)


def described(order: SpawnOrder, bridge: str, cidr: str, guest: GuestAddress) -> Description:
    """The description of what an order makes; it is not let yet."""
    return Description(
        installation_id=order.installation_id,
        scaler=order.scaler,
        agent_id=order.agent_id,
        job_id=order.job_id,
        run_id=order.run_id,
        lease_token=order.lease_token,
        created_at=datetime.now(UTC).timestamp(),
        bridge=bridge,
        cidr=cidr,
        address=guest.address,
        mac=guest.mac,
        tap=guest.tap,
    )


def found(layout: Layout, description: Description, *, running: bool) -> FoundCompute:
    """It as the contract lists it."""
    return FoundCompute(
        installation_id=description.installation_id,
        scaler=description.scaler,
        agent_id=description.agent_id,
        job_id=description.job_id,
        run_id=description.run_id,
        lease_token=description.lease_token,
        running=running,
        created_at=datetime.fromtimestamp(description.created_at, UTC),
        name=description.agent_id,
        ref=reference(layout, description),
    )


def reference(layout: Layout, description: Description) -> dict[str, str]:
    """What the spawn's row keeps of it."""
    return {
        "base": str(layout.base),
        "program": layout.program,
        "address": description.address,
        "tap": description.tap,
    }
