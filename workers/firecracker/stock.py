"""What of an installation's microVMs a machine holds, and putting right what nobody owns.

Compute without a row is the stocktaking's to reclaim, which asks the database. What is swept
here is what no microVM of ours can need: rules, interfaces, addresses and folders of agents that
have neither a folder nor a record nor a process any more. A microVM that runs is never touched.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import structlog

from kici_scaler.domain.scalers import BackendType
from workers.contract import ComputeRef, Deadline, FoundCompute
from workers.errors import BackendError
from workers.firecracker import chroot, described, processes
from workers.firecracker.described import Description
from workers.firecracker.layout import Layout
from workers.firecracker.links import opened
from workers.firecracker.names import PROTECTED, TAP_PATTERN
from workers.firecracker.teardown import Teardown, remove_cgroups
from workers.firecracker.tools import Tools
from workers.network.access import AgentAccess, Owner

HALF_MADE_SECONDS = 300.0
"""Making a folder takes seconds; one that says for so long not whose it is was left behind."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Swept:
    """How much of what nobody owns was taken away."""

    rules: int = 0
    taps: int = 0
    addresses: int = 0
    folders: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.rules + self.taps + self.addresses + self.folders


@dataclass(slots=True)
class Stock:
    """The microVMs of one installation below all chroot bases that are known."""

    tools: Tools
    installation_id: str
    bases: Collection[Path] = field(default_factory=tuple)

    def taken(self, deadline: Deadline) -> tuple[FoundCompute, ...]:
        """Everything that is there, ended and half made too. Raises `NotDone`."""
        seen = self._described()
        found = [
            described.found(layout, each, running=processes.is_vmm_alive(layout))
            for layout, each in seen
        ]
        named = {each.agent_id for _, each in seen}
        for agent_id, record in self.tools.records.begun(self.installation_id).items():
            layout = record.layout(agent_id)
            if agent_id not in named and layout is not None:
                found.append(_half_made(self.installation_id, layout, record.scaler, record.token))
        self._restore_rules(seen, deadline)
        self.sweep(deadline)
        return tuple(found)

    def sweep(self, deadline: Deadline) -> Swept:
        """Take away what nobody owns; what cannot be now is left to the next sweep."""
        swept = Swept()
        for what, step in (
            ("rules", self._forget_rules),
            ("taps", self._remove_taps),
            ("addresses", self._release_addresses),
            ("folders", self._remove_folders),
        ):
            try:
                count = step(deadline)
            except BackendError as error:
                _log.warning(f"stale {what} could not be looked for", problem=str(error))
                continue
            if count:
                _log.warning(f"removed {what} that no microVM stands for", count=count)
            swept = Swept(**{**_counts(swept), what: count})
        return swept

    def reap_ended(self, deadline: Deadline) -> dict[str, int]:
        """Remove microVMs that run no more; how many, by scaler. For machines without rows."""
        removed: dict[str, int] = {}
        for layout, each in self._described():
            if processes.has_any_process(layout) or processes.of(layout):
                continue
            token = max(each.lease_token, self.tools.records.look(self._owner(each.agent_id)).token)
            agent = ComputeRef(self.installation_id, each.scaler, each.agent_id, token)
            if Teardown(self.tools, agent, deadline).run(layout, only_found=True):
                removed[each.scaler] = removed.get(each.scaler, 0) + 1
        return removed

    def living(self) -> set[Owner]:
        """Everyone who may need something: by folder or by record."""
        agents = {each.agent_id for _, each in self._described()}
        agents |= set(self.tools.records.begun(self.installation_id))
        return {self._owner(each) for each in agents}

    def _owner(self, agent_id: str) -> Owner:
        return Owner(self.installation_id, agent_id)

    def _all_bases(self) -> frozenset[Path]:
        return self.tools.records.bases() | frozenset(self.bases)

    def _described(self) -> list[tuple[Layout, Description]]:
        return [
            (Layout.of_home(home), each)
            for home, each in described.every(self._all_bases())
            if each is not None and each.installation_id == self.installation_id
        ]

    def _restore_rules(
        self, seen: Collection[tuple[Layout, Description]], deadline: Deadline
    ) -> None:
        """Somebody may have flushed the host's rules; from then on guests reach nothing."""
        try:
            there = self.tools.isolation.addresses(deadline) if seen else {}
            for layout, each in seen:
                owner = self._owner(each.agent_id)
                if there.get(owner) == each.address or not processes.is_vmm_alive(layout):
                    continue
                access = AgentAccess.from_json(owner, each.address, each.access)
                self.tools.isolation.let(each.bridge, each.cidr, access, deadline)
                _log.error("network rules were lost, and are in force again", agent=str(owner))
        except (BackendError, KeyError, TypeError, ValueError) as error:
            _log.error("network rules could not be looked after", problem=str(error))

    def _forget_rules(self, deadline: Deadline) -> int:
        if not self.tools.isolation.is_available:
            return 0
        kind = BackendType.FIRECRACKER.value
        return self.tools.isolation.forget_all_but(
            self.living, self.installation_id, deadline, concerns=lambda owner: owner.is_of(kind)
        )

    def _remove_taps(self, deadline: Deadline) -> int:
        """Interfaces that nobody needs. Who has one open is behind it, and keeps it."""
        with self.tools.alone(deadline), opened() as links:
            listed = [
                each
                for each in links.all()
                if TAP_PATTERN.match(each.name) and each.is_tap and each.name not in PROTECTED
            ]
            # Read after the listing: what was given out in between is protected.
            living = self.living() if listed else set()
            held = self._held_taps() if listed else set()
            stale = [
                each
                for each in listed
                if not each.is_open and each.name not in held and self._is_ours(each.owner, living)
            ]
            for each in stale:
                links.remove(each.name)
        return len(stale)

    def _is_ours(self, owner: Owner | None, living: set[Owner]) -> bool:
        """Whether it is a left one of ours, or one that was made and never named."""
        if owner is None:
            return True
        return owner.installation_id == self.installation_id and owner not in living

    def _held_taps(self) -> set[str]:
        if self.tools.addresses is None:
            return set()
        return {each.tap for each in self.tools.addresses.held().values()}

    def _release_addresses(self, _deadline: Deadline) -> int:
        if self.tools.addresses is None:
            return 0
        unowned = self.tools.addresses.unowned()
        living = {each.agent_id for each in self.living()} if unowned else set()
        return sum(self.tools.addresses.release(each) for each in sorted(unowned - living))

    def _remove_folders(self, deadline: Deadline) -> int:
        """Folders that never came to say whose they are, with nobody in them."""
        removed = 0
        known = {
            each.layout(agent)
            for agent, each in self.tools.records.begun(self.installation_id).items()
        }
        for home, each in described.every(self._all_bases()):
            layout = Layout.of_home(home)
            if each is not None or layout in known or not _is_old(home):
                continue
            if processes.has_any_process(layout) or processes.of(layout):
                continue
            remove_cgroups(layout.agent_id, deadline)
            chroot.remove(layout)
            removed += 1
        return removed


def _is_old(home: Path) -> bool:
    try:
        return home.stat().st_mtime < time.time() - HALF_MADE_SECONDS
    except OSError:
        return False


def _counts(swept: Swept) -> dict[str, int]:
    return {
        "rules": swept.rules,
        "taps": swept.taps,
        "addresses": swept.addresses,
        "folders": swept.folders,
    }


def _half_made(installation_id: str, layout: Layout, scaler: str, token: int) -> FoundCompute:
    """What was begun and does not yet say itself what it is."""
    return FoundCompute(
        installation_id=installation_id,
        scaler=scaler,
        agent_id=layout.agent_id,
        job_id=None,
        run_id=None,
        lease_token=token,
        running=False,
        created_at=datetime.now(UTC) if not layout.home.exists() else _made_at(layout.home),
        name=layout.agent_id,
        ref={"base": str(layout.base), "program": layout.program},
    )


def _made_at(home: Path) -> datetime:
    return datetime.fromtimestamp(home.stat().st_mtime, UTC)
