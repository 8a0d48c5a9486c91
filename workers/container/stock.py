"""Taking stock of a machine: every container of an installation, on every runtime."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog

from kici_scaler.domain.scalers import BackendType
from workers.container import containers, upkeep
from workers.container.engine import Connection
from workers.container.known import Engines
from workers.container.marks import JOB, POLICY, RUN, SCALER, owner_in, token_in
from workers.container.place import Place
from workers.container.seen import Listed
from workers.container.tools import Tools
from workers.contract import Deadline, FoundCompute
from workers.errors import BackendError, PartlyListed
from workers.network.access import Owner
from workers.records import KEPT_SECONDS

_log = structlog.get_logger()


class Stock:
    """What there is of one installation.

    Attributes:
        in_use: the runtimes that scalers name by now; None when that is not known.
    """

    def __init__(
        self,
        engines: Engines,
        tools: Tools,
        installation_id: str,
        in_use: Collection[Place] | None = None,
    ) -> None:
        self._engines = engines
        self._tools = tools
        self._installation_id = installation_id
        self._in_use = in_use

    def taken(self, deadline: Deadline) -> tuple[FoundCompute, ...]:
        """Everything that is there; network rules that were lost or are stale are put right.

        Raises:
            PartlyListed: some runtime did not answer.
        """
        found: list[FoundCompute] = []
        problems: list[BackendError] = []
        engines = self._engines.all()
        for number, engine in enumerate(engines):
            share = deadline.within(deadline.remaining / (len(engines) - number))
            try:
                with engine.connected(share) as connection:
                    found += self._at(connection)
            except BackendError as error:
                problems.append(error)
                self._forget_if_past(engine.place)
        if problems:
            said = "; ".join(map(str, problems))
            raise PartlyListed(said, hint=problems[0].hint, found=found)
        self.forget_stale_rules(deadline)
        return tuple(found)

    def _at(self, connection: Connection) -> list[FoundCompute]:
        listed = containers.listed(connection, installation=self._installation_id)
        agents = [each for each in listed if owner_in(each.marks) is not None]
        self._restore_rules(connection, [each for each in agents if POLICY in each.marks])
        place = connection.place
        if not listed and not self._is_used(place):
            self._engines.forget(place)
        return [self._as_found(each, place) for each in agents]

    def _is_used(self, place: Place) -> bool:
        return self._in_use is None or place in self._in_use

    def _forget_if_past(self, place: Place) -> None:
        """A runtime that is gone for good must not make every inventory a part for ever."""
        if not self._is_used(place):
            self._engines.forget(place, unwanted_for=KEPT_SECONDS)

    def _restore_rules(self, connection: Connection, isolated: Sequence[Listed]) -> None:
        try:
            lost = upkeep.restore_rules(connection, self._tools, isolated)
        except BackendError as error:
            _log.error("network rules could not be looked after", problem=str(error))
            return
        if lost:
            _log.error("network rules were lost, and are in force again", agents=[*map(str, lost)])

    def forget_stale_rules(self, deadline: Deadline) -> int:
        """Take away rules that no container stands for; how many agents had such."""

        def living() -> set[Owner]:
            owners: set[Owner] = set()
            for engine in self._engines.all():
                with engine.connected(deadline) as connection:
                    listed = containers.listed(connection, installation=self._installation_id)
                    owners |= {owner for each in listed if (owner := owner_in(each.marks))}
            return owners

        if not self._tools.isolation.is_available:
            return 0
        try:
            return self._tools.isolation.forget_all_but(
                living,
                self._installation_id,
                deadline,
                # Agents in microVMs have no container, and their rules are not for us to judge.
                concerns=lambda owner: not owner.is_of(BackendType.FIRECRACKER.value),
            )
        except BackendError as error:
            _log.warning("stale network rules stay behind", problem=str(error))
            return 0

    def _as_found(self, each: Listed, place: Place) -> FoundCompute:
        owner = owner_in(each.marks)
        assert owner is not None, "only agents' containers are given out"
        return FoundCompute(
            installation_id=owner.installation_id,
            scaler=each.marks.get(SCALER, ""),
            agent_id=owner.agent_id,
            job_id=each.marks.get(JOB),
            run_id=each.marks.get(RUN),
            lease_token=max(token_in(each.marks), self._tools.records.look(owner).token),
            running=each.is_running,
            created_at=each.created_at,
            name=each.name,
            ref={**place.as_json(), "container": each.id},
        )
