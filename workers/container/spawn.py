"""Making an agent's container: once a name, by the highest lease only, never without its rules.

Kill table (`kill -9` at ...):

- before `create`: nothing is there; the next call makes it.
- during `create`: the runtime may still make it. The record says so: a destroy waits a moment
  before it believes that nothing is there, and the inventory finds what comes later.
- after `create`, before `start`: a container that never ran; the next call gives it its own
  token and starts it, so that it is started once however many calls there were.
- after `start`, before the rules: it runs and reaches nothing; the next call makes the rules.
- after the rules: it runs; the next call finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from workers.container import containers, injection, judge, networks, runtime_volume
from workers.container.engine import Connection
from workers.container.images import Image
from workers.container.marks import container_name, token_in
from workers.container.networks import AgentNetwork
from workers.container.place import Place
from workers.container.plan import container_body
from workers.container.records import Held, Records, begin
from workers.container.seen import Seen
from workers.container.surround import Surround
from workers.container.teardown import forget_rules, remove
from workers.container.tools import Tools, cause_of, last_lines, own_container, wait_for
from workers.contract import Deadline, LifecycleKind, SpawnedCompute, SpawnOrder
from workers.errors import (
    BackendError,
    Missing,
    NotDone,
    NotOwner,
    OutcomeUnknown,
    Permanent,
    Refused,
)
from workers.network.access import Owner

UNDO_SECONDS = 10.0
"""Kept back of a call's time, at most a quarter of it, to undo what did not work out."""


def claim(records: Records, order: SpawnOrder, place: Place, deadline: Deadline) -> None:
    """Note, before anything is asked of the runtime, that this lease acts there from now on.

    Raises:
        NotOwner: a newer one was here.
    """
    with records.held(Owner(order.installation_id, order.agent_id), deadline) as held:
        held.record.require(order.lease_token, to_start=True)
        if (held.record.token, held.record.place) != (order.lease_token, place):
            held.save(token=order.lease_token, place=place, is_destroyed=False)


class Spawn:
    """One call of `spawn`, after its claim."""

    def __init__(self, tools: Tools, connection: Connection, order: SpawnOrder) -> None:
        self._tools = tools
        self._connection = connection
        self._order = order
        self._owner = Owner(order.installation_id, order.agent_id)
        self._name = container_name(self._owner)
        self._surround = Surround(tools, connection, order)
        self._end = connection.deadline
        self._may_yet_appear = False

    def run(self) -> SpawnedCompute:
        """Make it, or find it; raises as the contract says."""
        kept_back = min(UNDO_SECONDS, self._end.remaining / 4)
        self._connection.deadline = Deadline(self._end.at - kept_back)
        self._require_wanted()
        found = own_container(self._connection, self._owner)
        network = self._surround.network()
        image = self._surround.images() if found is None or found.is_unstarted else None
        self._require_wanted()
        with self._tools.records.held(self._owner, self._connection.deadline) as held:
            held.record.require(self._order.lease_token, to_start=True)
            return self._make_or_find(held, network, image)

    def _require_wanted(self) -> None:
        if not self._order.still_wanted():
            raise NotDone(f"{self._order.agent_id} is no longer wanted")

    def _make_or_find(
        self, held: Held, network: AgentNetwork | None, image: Image | None
    ) -> SpawnedCompute:
        found = own_container(self._connection, self._owner)
        if found is not None and token_in(found.marks) > self._order.lease_token:
            raise NotOwner(f"{self._name} was made with a newer lease token")
        if found is not None and judge.is_over(found):
            self._raise_over(held, found)
        if found is not None and found.is_running:
            return self._arrived(held, self._let(found, network))
        try:
            if found is None:
                self._create(held, network, image)
            seen = self._bring_up(network, image)
        except BackendError as error:
            raise self._undone(held, error) from error
        if not seen.is_running and seen.exit_code != 0:
            self._raise_over(held, seen)
        return self._arrived(held, seen)

    def _create(self, held: Held, network: AgentNetwork | None, image: Image | None) -> None:
        """Make the container; whoever else makes it at the same moment makes the same one."""
        if image is None:
            raise NotDone(f"{self._name} was removed while it was looked at")
        self._surround.tell(f"creating {self._name}")
        body = container_body(
            self._surround.order_on(network), self._surround.around(network, image)
        )
        begin(held, is_isolated=network is not None)
        try:
            made = containers.create(self._connection, self._name, body)
        except OutcomeUnknown:
            self._may_yet_appear = own_container(self._connection, self._owner) is None
            if self._may_yet_appear:
                raise
            made = True
        except Refused as error:
            raise self._refused(error) from error
        if not made:
            self._require_own_name()
        self._require_wanted()

    def _require_own_name(self) -> None:
        """See that the container with the name is ours; a moment may pass until it can be seen."""
        wait_for(
            self._connection, lambda: containers.find(self._connection, self._name) is not None
        )
        if own_container(self._connection, self._owner) is None:
            raise Permanent(
                f"the name {self._name} is taken by a container that is not this agent's",
                hint="remove that container, or give it another name",
            )

    def _refused(self, error: Refused) -> BackendError:
        """What the runtime will not make, as it would never."""
        if isinstance(error, Missing):
            return error
        return Permanent(str(error), job_caused=self._is_jobs_doing)

    @property
    def _is_jobs_doing(self) -> bool:
        """Whether the job asked for something that could be why it cannot be made."""
        order = self._order
        own_limits = order.limits != order.label_set.resources.limits
        return order.job_id is not None and (own_limits or order.job_image is not None)

    def _bring_up(self, network: AgentNetwork | None, image: Image | None) -> Seen:
        """Give the made container what it needs, start it, and close its network around it."""
        made = own_container(self._connection, self._owner)
        if made is None:
            raise NotDone(f"{self._name} was removed while it was made")
        if self._order.job_image and image is not None:
            runtime_volume.ensure_filled(
                self._connection,
                image.id,
                self._name,
                self._order.installation_id,
                self._tools.locks,
            )
        archive = injection.agent_archive(self._order.agent_token, self._uid(made))
        containers.upload(self._connection, self._name, archive)
        started = self._start()
        if started.is_running:
            self._let(started, network)
        self._require_wanted()
        return started

    def _uid(self, made: Seen) -> int:
        """Whom the token is for: the image's user, by the image's own account file."""
        name = injection.user_name(made.user)
        if not name or name.isdecimal():
            return injection.uid_of(made.user)
        accounts = containers.file(self._connection, self._name, "/etc/passwd") or b""
        return injection.uid_of(made.user, accounts.decode(errors="replace"))

    def _start(self) -> Seen:
        """Start it; what runs, or has ended already. An answer that was lost is looked up."""
        problem: BackendError | None = None
        try:
            containers.start(self._connection, self._name)
        except (Refused, OutcomeUnknown) as error:
            problem = error
        seen = own_container(self._connection, self._owner)
        if seen is None:
            raise problem or NotDone(f"{self._name} was removed while it was started")
        if seen.is_running:
            return seen
        if problem is not None and (seen.is_unstarted or seen.error):
            raise self._unstartable(problem)
        return seen

    def _unstartable(self, problem: BackendError) -> BackendError:
        """A start that was refused; whether for ever, not every runtime tells."""
        kind = Permanent if isinstance(problem, Refused) else OutcomeUnknown
        return kind(str(problem), job_caused=self._is_jobs_doing)

    def _let(self, seen: Seen, network: AgentNetwork | None) -> Seen:
        """Put the rules for its address in force; without them it reaches nothing."""
        if network is None:
            return seen
        address = seen.addresses.get(networks.NAME)
        if not address:
            raise NotDone(f"{self._name} has no address on {networks.NAME}, so it has no rules")
        access = self._surround.access(network, address)
        self._tools.isolation.let(
            network.bridge, network.network, access, self._connection.deadline
        )
        self._order.tell(LifecycleKind.NETWORK, f"{address} on {networks.NAME}")
        return seen

    def _arrived(self, held: Held, seen: Seen) -> SpawnedCompute:
        held.save(began_making_at=None)
        order = self._order
        order.tell(LifecycleKind.READY, f"container {seen.id[:12]}")
        order.tell(LifecycleKind.CONNECTING, f"connecting to {order.gateway_url}")
        return SpawnedCompute(self._name, self._ref(seen))

    def _ref(self, seen: Seen) -> Mapping[str, str]:
        return {**self._connection.place.as_json(), "container": seen.id}

    def _raise_over(self, held: Held, seen: Seen) -> NoReturn:
        """It ran and ended, or could not be started; it stays until it is destroyed."""
        cause = cause_of(self._connection, seen, was_stopped=held.record.is_ending)
        held.save(began_making_at=None)
        raise Permanent(
            f"{self._name} has ended: {cause.detail}",
            log_tail=cause.log_tail,
            job_caused=self._order.job_image is not None,
        )

    def _undone(self, held: Held, error: BackendError) -> BackendError:
        """Remove what this call made, and say what is certain then."""
        self._connection.deadline = self._end
        if held.record.is_isolated:
            forget_rules(self._tools, self._owner, self._end)
        try:
            own = own_container(self._connection, self._owner)
            tail = error.log_tail or (last_lines(self._connection, own.name) if own else ())
            remove(self._connection, self._owner)
        except BackendError as problem:
            return OutcomeUnknown(f"{error}; what was made could not be removed: {problem}")
        if self._may_yet_appear:
            return OutcomeUnknown(str(error), hint=error.hint)
        held.save(began_making_at=None)
        kind = NotDone if isinstance(error, OutcomeUnknown) else type(error)
        return kind(str(error), hint=error.hint, job_caused=error.job_caused, log_tail=tail)
