"""Making an agent's microVM: once a name, by the highest lease only, never without its rules.

Between any two steps it is asked whether the agent is still wanted; if it is not, or a step
fails, all of it is taken away again, the microVM first.

Kill table (`kill -9` at ...):

- before the record says that something was begun: nothing is there.
- after that, up to the monitor's mark `started`: an address, an interface, rules or a folder may
  be there, and nothing runs. The next call goes on from any of these; each step finds its own.
- after the mark: it runs, or has ended. The next call never starts it again. It finds it running,
  hands its guest the token if that was not done, or tells how it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

import structlog

from kici_scaler.domain.guest_addresses import GuestAddress
from kici_scaler.domain.networks import network_policy
from workers.container import reach
from workers.contract import Deadline, LifecycleKind, SpawnedCompute, SpawnOrder
from workers.errors import BackendError, NotDone, NotOwner, OutcomeUnknown, Permanent
from workers.firecracker import chroot, described, jail, mmds, processes, starter
from workers.firecracker.api import FirecrackerApi
from workers.firecracker.described import Description
from workers.firecracker.layout import Layout
from workers.firecracker.links import make_tap, opened
from workers.firecracker.machine import machine_document, size_of
from workers.firecracker.names import tap_names
from workers.firecracker.records import Held
from workers.firecracker.settings import Bridge, Images, Programs
from workers.firecracker.teardown import clean
from workers.firecracker.tools import Tools, cause_of, is_over
from workers.network.access import AgentAccess, Owner, agent_access

UNDO_SECONDS = 10.0
"""Kept back of a call's time, at most a quarter of it, to undo what did not work out."""

_log = structlog.get_logger()


class Spawn:
    """One call of `spawn`."""

    def __init__(self, tools: Tools, order: SpawnOrder, deadline: Deadline) -> None:
        self._tools = tools
        self._order = order
        self._owner = Owner(order.installation_id, order.agent_id)
        self._end = deadline
        kept_back = min(UNDO_SECONDS, deadline.remaining / 4)
        self._deadline = Deadline(deadline.at - kept_back)
        self._programs = Programs.of(order.options)
        self._images = Images.of(order.options, order.label_set)
        self._bridge = Bridge.of(order.options)
        self._size = size_of(order.limits, order.label_set, order.options)

    def run(self) -> SpawnedCompute:
        """Make it, or find it; raises as the contract says."""
        with self._tools.records.held(self._owner, self._deadline) as held:
            held.record.require(self._order.lease_token, to_start=True)
            layout = held.record.layout(self._order.agent_id) or self._own_layout()
            description = self._require_own(layout)
            if held.record.is_destroyed:
                held.save(is_destroyed=False, is_ending=False, has_run=False, is_cleared=False)
            held.save(token=self._order.lease_token)
            if held.record.has_run and not layout.home.exists():
                raise Permanent(f"{self._order.agent_id} has run, and failed to come up")
            self._await_earlier(layout)
            if layout.started.exists() and description is not None:
                return self._find(held, layout, description)
            self._require_wanted()
            return self._make(held, layout)

    def _own_layout(self) -> Layout:
        program = self._programs.firecracker.resolve().name
        return Layout(self._programs.chroot_base.absolute(), self._order.agent_id, program)

    def _require_own(self, layout: Layout) -> Description | None:
        description = described.read(layout.home)
        if description is None:
            return None
        if description.installation_id != self._owner.installation_id:
            raise Permanent(f"the name {layout.agent_id} is taken by another installation")
        if description.lease_token > self._order.lease_token:
            raise NotOwner(f"{layout.agent_id} was made with a newer lease token")
        return description

    def _require_wanted(self) -> None:
        if not self._order.still_wanted():
            raise NotDone(f"{self._order.agent_id} is no longer wanted")

    def _find(self, held: Held, layout: Layout, description: Description) -> SpawnedCompute:
        """It was started before: complete what runs, or tell how it ended."""
        described.write(layout, description.with_token(self._order.lease_token))
        if is_over(layout):
            self._raise_over(held, layout)
        access = AgentAccess.from_json(self._owner, description.address, description.access)
        self._let(description, access)
        api = starter.await_api(layout, self._deadline)
        self._hand_over(held, api)
        return self._arrived(layout, description)

    def _make(self, held: Held, layout: Layout) -> SpawnedCompute:
        try:
            return self._made(held, layout)
        except OutcomeUnknown as error:
            if layout.started.exists() and self._deadline.has_passed:
                # It may be coming up: the next call looks, and takes it over.
                raise
            raise self._undone(held, layout, error) from error
        except BackendError as error:
            raise self._undone(held, layout, error) from error

    def _made(self, held: Held, layout: Layout) -> SpawnedCompute:
        order = self._order
        order.tell(LifecycleKind.PROVISIONING, f"preparing {layout.agent_id}")
        chroot.require_room(layout.base)
        held.save(base=str(layout.base), program=layout.program, scaler=order.scaler)
        description = self._network(held, layout)
        steps: list[Callable[[], object]] = [
            lambda: chroot.place_images(layout, self._images, self._programs),
            lambda: chroot.make_overlay(layout, self._images, self._deadline),
            lambda: self._configure(layout, description.guest),
            lambda: chroot.hand_over(layout, self._programs),
            lambda: self._start(held, layout),
        ]
        for step in steps:
            self._require_wanted()
            step()
        self._require_wanted()
        api = starter.await_api(layout, self._deadline)
        self._require_wanted()
        self._hand_over(held, api)
        self._require_wanted()
        return self._arrived(layout, description)

    def _await_earlier(self, layout: Layout) -> None:
        """A monitor of a killed caller may be about to start it; then that is what is found."""
        if not layout.home.exists() or processes.wait_until(
            lambda: layout.started.exists() or not processes.of(layout), self._deadline
        ):
            return
        raise OutcomeUnknown(f"{layout.agent_id} is being started by an earlier call")

    def _network(self, held: Held, layout: Layout) -> Description:
        """Address, interface and rules; nobody else gives out any of these meanwhile."""
        with self._tools.alone(self._deadline), opened() as links:
            guest = self._tools.book.allocate(
                self._order.agent_id,
                self._order.scaler,
                self._bridge.network,
                tap_names(self._order.agent_id),
                self._foreign({each.name for each in links.all() if each.owner != self._owner}),
            )
            held.save(tap=guest.tap)
            self._require_wanted()
            chroot.make_folders(layout)
            bridge, cidr = self._bridge.name, self._bridge.network.cidr
            access = self._access(guest)
            description = replace(
                described.described(self._order, bridge, cidr, guest), access=access.as_json()
            )
            described.write(layout, description)
            self._require_wanted()
            user = self._programs.uid, self._programs.gid
            make_tap(links, guest.tap, self._owner, bridge, user)
            self._require_wanted()
            self._let(description, access)
        self._order.tell(LifecycleKind.NETWORK, f"{guest.address} on {bridge} by {guest.tap}")
        return description

    def _foreign(self, names: set[str]) -> set[str]:
        """Names and addresses that are in use on this machine and are in no row of ours."""
        there = self._tools.isolation.addresses(self._deadline)
        own = self._owner.installation_id
        return names | {address for owner, address in there.items() if owner.installation_id != own}

    def _access(self, guest: GuestAddress) -> AgentAccess:
        return agent_access(
            self._owner,
            address=guest.address,
            gateway=self._bridge.network.gateway,
            policy=network_policy(self._order.label_set),
            gateway_url=self._gateway_url,
            gateway_addresses=reach.addresses_of(self._gateway_url, {}, self._deadline),
        )

    @property
    def _gateway_url(self) -> str:
        """The gateway's URL as it is meant from inside the guest."""
        return reach.seen_from_inside(self._order.gateway_url, self._bridge.network.gateway)

    def _let(self, description: Description, access: AgentAccess) -> None:
        self._tools.isolation.let(description.bridge, description.cidr, access, self._deadline)

    def _configure(self, layout: Layout, guest: GuestAddress) -> None:
        document = machine_document(self._size, guest, self._bridge.network)
        chroot.write_configuration(layout, document)

    def _start(self, held: Held, layout: Layout) -> None:
        programs = replace(self._programs, firecracker=self._programs.firecracker.resolve())
        for path in (programs.firecracker, programs.jailer):
            if not path.is_file():
                raise Permanent(f"{path} is not there", hint="install it, or correct its path")
        command = jail.jailer_command(programs, layout, self._size, jail.cgroup_version())
        held.save(has_run=True)
        starter.start(layout, command, self._deadline)

    def _hand_over(self, held: Held, api: FirecrackerApi) -> None:
        """Tell the guest what it needs, once; its token is nowhere else."""
        if held.record.is_told:
            return
        environment = mmds.environment_of(self._order)
        for warning in environment.warnings:
            _log.warning(warning, agent_id=self._order.agent_id, scaler=self._order.scaler)
        gateway = self._bridge.network.gateway
        document = mmds.document(self._order, gateway, self._gateway_url, environment.variables)
        api.put_metadata(document, self._deadline)
        held.save(is_told=True)

    def _arrived(self, layout: Layout, description: Description) -> SpawnedCompute:
        order = self._order
        order.tell(LifecycleKind.READY, f"microVM {layout.agent_id} at {description.address}")
        order.tell(LifecycleKind.CONNECTING, f"connecting to {self._gateway_url}")
        return SpawnedCompute(layout.agent_id, described.reference(layout, description))

    def _raise_over(self, held: Held, layout: Layout) -> NoReturn:
        """It ran and ended; it stays until it is destroyed."""
        cause = cause_of(layout, was_stopped=held.record.is_ending)
        raise Permanent(f"{layout.agent_id} has ended: {cause.detail}", log_tail=cause.log_tail)

    def _undone(self, held: Held, layout: Layout, error: BackendError) -> BackendError:
        """Take away what this call made, and say what is certain then."""
        has_run = layout.started.exists()
        try:
            clean(self._tools, self._owner, layout, held, self._end, gently=False)
        except BackendError as problem:
            return OutcomeUnknown(f"{error}; what was made could not be removed: {problem}")
        held.save(base="", tap="", is_told=False, has_run=has_run)
        kind = NotDone if isinstance(error, OutcomeUnknown) else type(error)
        if has_run and not isinstance(error, NotDone):
            # What ran under a name is never started again under it.
            kind = Permanent
        return kind(
            str(error), hint=error.hint, job_caused=error.job_caused, log_tail=error.log_tail
        )
