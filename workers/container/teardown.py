"""Taking an agent's container away, confirmed, whatever state it is in.

The rules go first, while the container still has its address: nobody else can have it yet, and
the agent reaches nothing from then on.
"""

from __future__ import annotations

import time
from contextlib import suppress

import structlog

from workers.container import containers
from workers.container.engine import Connection
from workers.container.marks import POLICY, container_name, token_in
from workers.container.records import Held
from workers.container.seen import Seen
from workers.container.tools import Tools, own_container, wait_for
from workers.contract import ComputeRef, Deadline
from workers.errors import BackendError, NotOwner, OutcomeUnknown
from workers.network.access import Owner

GRACE_SECONDS = 10
"""From TERM to KILL; the reference's number."""

SETTLE_SECONDS = 2.0
"""How long after its request a creation may still come true that nobody waits for any more."""

_log = structlog.get_logger()


class Teardown:
    """One call of `destroy` or `reclaim`, at one place."""

    def __init__(self, tools: Tools, connection: Connection, agent: ComputeRef) -> None:
        self._tools = tools
        self._connection = connection
        self._agent = agent
        self._owner = Owner(agent.installation_id, agent.agent_id)

    def run(self, *, only_found: bool) -> bool:
        """End and remove it; whether there was anything. Raises as the contract says."""
        with self._tools.records.held(self._owner, self._connection.deadline) as held:
            held.record.require(self._agent.lease_token)
            found = self._find(held)
            if found is None and only_found:
                return False
            if found is not None and token_in(found.marks) > self._agent.lease_token:
                raise NotOwner(f"{found.name} was made with a newer lease token")
            held.save(token=self._agent.lease_token, is_ending=True)
            if held.record.is_isolated or (found is not None and POLICY in found.marks):
                forget_rules(self._tools, self._owner, self._connection.deadline)
            if found is not None:
                self._end(found)
            held.save(is_destroyed=True, is_ending=False, began_making_at=None, is_isolated=False)
            return found is not None

    def _find(self, held: Held) -> Seen | None:
        """The container; one whose creation was begun and never answered is waited for."""
        began = held.record.began_making_at
        settled_at = 0.0 if began is None else began + SETTLE_SECONDS
        found = own_container(self._connection, self._owner)
        if found is None and 0 < settled_at - time.time() <= SETTLE_SECONDS:
            until = Deadline.after(settled_at - time.time())
            wait_for(self._connection, lambda: until.has_passed or self._is_there())
            found = own_container(self._connection, self._owner)
        return found

    def _is_there(self) -> bool:
        return own_container(self._connection, self._owner) is not None

    def _end(self, found: Seen) -> None:
        if found.is_running:
            grace = min(GRACE_SECONDS, int(self._connection.deadline.remaining / 2))
            with suppress(BackendError):
                containers.stop(self._connection, found.name, grace)
        remove(self._connection, self._owner)


def forget_rules(tools: Tools, owner: Owner, deadline: Deadline) -> None:
    """Take an agent's rules away; rules that cannot be now do not keep a container alive.

    They are found by the next inventory, and by whoever gets the address next.
    """
    try:
        tools.isolation.forget([owner], deadline)
    except BackendError as error:
        _log.warning("network rules stay behind", agent=str(owner), problem=str(error))


def remove(connection: Connection, owner: Owner) -> None:
    """Remove an agent's container and see it gone; nothing there is success.

    Raises:
        NotDone, OutcomeUnknown: it is not certain that it is gone.
    """
    if own_container(connection, owner) is None:
        return
    name = container_name(owner)
    problem: BackendError | None = None
    try:
        containers.remove(connection, name)
    except BackendError as error:
        problem = error
    if problem is not None and own_container(connection, owner) is not None:
        raise problem
    if not wait_for(connection, lambda: own_container(connection, owner) is None):
        raise OutcomeUnknown(f"{name} is still there")
