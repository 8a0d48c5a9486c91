"""Agents as containers, on any number of runtimes."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from kici_scaler.domain.scalers import Scaler
from workers.container import ahead, checks, networks, runtime_volume, tools, upkeep
from workers.container.engine import Connection, Engine
from workers.container.images import Images, look
from workers.container.known import Engines
from workers.container.place import Place
from workers.container.records import Records
from workers.container.spawn import Spawn, claim
from workers.container.stock import Stock
from workers.container.teardown import Teardown
from workers.container.tools import Tools, cause_of, own_container
from workers.contract import (
    BackendContext,
    ComputeRef,
    Deadline,
    ExitCause,
    ExitKind,
    Finding,
    FoundCompute,
    LifecycleKind,
    SpawnedCompute,
    SpawnOrder,
    failure_detail,
)
from workers.errors import BackendError, NotDone, OutcomeUnknown, Permanent
from workers.network.access import Owner
from workers.network.isolation import MACHINE_LOCK, Isolation

T = TypeVar("T")


def open_backend(context: BackendContext) -> ContainerBackend:
    """The backend of this worker."""
    return ContainerBackend(context)


class ContainerBackend:
    """Runs each agent as a container of the runtime that its scaler names.

    Any number of workers and installations may use one runtime: a container is touched only
    when its own labels say that it is this installation's.
    """

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        folder = context.state_dir / "container"
        self._engines = Engines(folder, context.ambient)
        lock = MACHINE_LOCK if os.geteuid() == 0 else folder / "nftables.lock"
        self._tools = Tools(
            Records(folder / "agents"),
            Images(folder / "pulls"),
            Isolation(lock),
            folder / "locks",
        )
        self._in_use: frozenset[Place] | None = None

    def prepare(self, scalers: Sequence[Scaler], deadline: Deadline) -> None:
        """Reach every runtime, make its network, pull what is asked for ahead.

        One that fails does not hinder the others.
        """
        self._tools.records.prune(time.time())
        places: dict[Place, list[Scaler]] = {}
        problems: list[BackendError] = []
        for scaler in scalers:
            try:
                engine = self._engines.for_options(scaler.options)
                places.setdefault(engine.place, []).append(scaler)
            except NotDone as error:
                problems.append(error)
        self._in_use = frozenset(places)
        for (place, its_scalers), share in _shared(places.items(), deadline):
            try:
                with self._engines.at(place).connected(share) as connection:
                    self._prepare_place(connection, its_scalers)
            except BackendError as error:
                problems.append(error)
        if problems:
            said = "; ".join(dict.fromkeys(map(str, problems)))
            raise NotDone(said, hint=problems[0].hint)

    def _prepare_place(self, connection: Connection, scalers: Sequence[Scaler]) -> None:
        if any(each.options.get("networkIsolation") is not False for each in scalers):
            network = networks.ensure(connection)
            self._tools.isolation.close(network.bridge, network.network, connection.deadline)
        upkeep.remove_left_fillers(connection, self._context.installation_id)
        ahead.pull_ahead(self._tools.images, connection, scalers)
        names = {each.text("image") for scaler in scalers for each in scaler.label_sets} - {None}
        images = [look(connection, name) for name in sorted(filter(None, names))]
        kept = [runtime_volume.volume_name(each.id) for each in images if each]
        runtime_volume.remove_unused(connection, self._context.installation_id, kept)

    def check(self, scalers: Sequence[Scaler], deadline: Deadline) -> tuple[Finding, ...]:
        return tuple(
            finding
            for scaler, share in _shared(scalers, deadline)
            for finding in checks.findings_of(
                scaler, self._engines, self._tools.isolation, share, self._context.ambient
            )
        )

    def spawn(self, order: SpawnOrder, deadline: Deadline) -> SpawnedCompute:
        try:
            engine = self._engines.for_options(order.options)
            claim(self._tools.records, order, engine.place, deadline)
            with engine.connected(deadline) as connection:
                return Spawn(self._tools, connection, order).run()
        except (NotDone, Permanent) as error:
            order.tell(LifecycleKind.FAILED, failure_detail(str(error), error.log_tail))
            raise

    def destroy(self, agent: ComputeRef, deadline: Deadline) -> None:
        try:
            for engine in self._of(agent):
                self._tear_down(engine, agent, deadline, only_found=False)
        except NotDone as error:
            if not self._was_never_begun(agent):
                raise OutcomeUnknown(str(error), hint=error.hint) from error
            self._fence(agent, deadline)
        else:
            self._fence(agent, deadline)

    def reclaim(self, agent: ComputeRef, deadline: Deadline) -> bool:
        try:
            # Each is asked, also after one had it: none may keep a second.
            found = [
                self._tear_down(engine, agent, deadline, only_found=True)
                for engine in self._of(agent)
            ]
        except NotDone as error:
            raise OutcomeUnknown(str(error), hint=error.hint) from error
        return any(found)

    def _tear_down(
        self, engine: Engine, agent: ComputeRef, deadline: Deadline, *, only_found: bool
    ) -> bool:
        with engine.connected(deadline) as connection:
            return Teardown(self._tools, connection, agent).run(only_found=only_found)

    def _fence(self, agent: ComputeRef, deadline: Deadline) -> None:
        """Refuse a late spawn also where there was no runtime to ask."""
        with self._tools.records.held(_owner(agent), deadline) as held:
            held.record.require(agent.lease_token)
            held.save(token=agent.lease_token, is_destroyed=True)

    def _was_never_begun(self, agent: ComputeRef) -> bool:
        """Whether this machine certainly never asked for a container for the agent.

        Then a runtime that does not answer cannot hold one either, if only this machine uses it.
        """
        record = self._tools.records.look(_owner(agent))
        is_only_ours = record.place is not None and record.place.is_local
        return agent.ref is None and record.token > 0 and not record.has_begun and is_only_ours

    def inventory(self, installation_id: str, deadline: Deadline) -> tuple[FoundCompute, ...]:
        stock = Stock(self._engines, self._tools, installation_id, self._in_use)
        return stock.taken(deadline)

    def reap_orphans(self, scalers: Sequence[Scaler], deadline: Deadline) -> Mapping[str, int]:
        """Remove ended containers, stale rules and unused volumes; how many, by scaler.

        Raises:
            NotDone: some runtime could not be asked; what the others held is removed.
        """
        installation_id = self._context.installation_id
        removed: Counter[str] = Counter()
        problems: list[BackendError] = []
        named: dict[Place, str] = {}
        for scaler in scalers:
            try:
                named.setdefault(self._engines.for_options(scaler.options).place, scaler.name)
            except NotDone as error:
                problems.append(error)
        for (place, first), share in _shared(named.items(), deadline):
            try:
                with self._engines.at(place).connected(share) as connection:
                    removed.update(upkeep.remove_ended(connection, installation_id))
                    removed[first] += upkeep.remove_left_fillers(connection, installation_id)
                    removed[first] += runtime_volume.remove_unused(connection, installation_id)
            except BackendError as error:
                problems.append(error)
        stock = Stock(self._engines, self._tools, installation_id, self._in_use)
        if named and not problems:
            removed[next(iter(named.values()))] += stock.forget_stale_rules(deadline)
        if problems:
            raise NotDone("; ".join(map(str, problems)), hint=problems[0].hint)
        return removed

    def logs(self, agent: ComputeRef, last_lines: int, deadline: Deadline) -> tuple[str, ...]:
        def ask(connection: Connection) -> tuple[str, ...] | None:
            found = own_container(connection, _owner(agent))
            return None if found is None else tools.last_lines(connection, found.name, last_lines)

        return self._first(agent, ask, deadline) or ()

    def exit_cause(self, agent: ComputeRef, deadline: Deadline) -> ExitCause | None:
        owner = _owner(agent)

        def ask(connection: Connection) -> tuple[ExitCause | None] | None:
            found = own_container(connection, owner)
            if found is None:
                return None
            if found.is_running or (found.is_unstarted and self._tools.records.is_held(owner)):
                return (None,)
            was_stopped = self._tools.records.look(owner).is_ending
            return (cause_of(connection, found, was_stopped=was_stopped),)

        answer = self._first(agent, ask, deadline)
        if answer is None:
            return ExitCause(ExitKind.ABSENT, detail="there is no container of that agent")
        return answer[0]

    def _first(
        self, agent: ComputeRef, ask: Callable[[Connection], T | None], deadline: Deadline
    ) -> T | None:
        """The first answer of the runtimes that may have the agent; all must have been asked."""
        for engine in self._of(agent):
            with engine.connected(deadline) as connection:
                answer = ask(connection)
            if answer is not None:
                return answer
        return None

    def _of(self, agent: ComputeRef) -> Iterator[Engine]:
        """The runtimes that may have the agent: the one recorded, else that of its scaler."""
        record = self._tools.records.look(_owner(agent))
        place = Place.from_json(agent.ref or {}) or record.place
        if place is not None:
            yield self._engines.at(self._secured(place, agent.options))
        elif agent.options:
            yield self._engines.for_options(agent.options)
        else:
            yield from self._engines.all()

    def _secured(self, place: Place, options: Mapping[str, object]) -> Place:
        """The place with the certificates its scaler names by now, if it is still the same."""
        if not options.get("host") or options["host"] != place.url:
            return place
        return self._engines.for_options(options).place


def _shared(each_of: Iterable[T], deadline: Deadline) -> Iterator[tuple[T, Deadline]]:
    """Each with its share of the time left, so that one that hangs leaves some to the others."""
    everything = list(each_of)
    for number, each in enumerate(everything):
        yield each, deadline.within(deadline.remaining / (len(everything) - number))


def _owner(agent: ComputeRef) -> Owner:
    return Owner(agent.installation_id, agent.agent_id)
