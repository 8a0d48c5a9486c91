"""The spawn rows that reservations become; each says all a later actor needs to know."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from kici_scaler.domain.admission import Situation
from kici_scaler.domain.labels import offer
from kici_scaler.domain.request import Waiting
from kici_scaler.domain.resources import Shape
from kici_scaler.domain.scalers import BackendType, LabelSet, Scaler
from kici_scaler.domain.windows import Windows
from kici_scaler.errors import KiciError
from kici_scaler.store import spawns
from kici_scaler.store.spawns import Blueprint, NewSpawn

AGENT_ID_PREFIX = "scaler-"
"""Ids that start with this were minted here, and only have agents while a spawn row lives."""
MOST_DRAWS = 16
DRAWN_AT_ONCE = 64
_ID_BYTES = 6


class AgentIdsExhausted(KiciError):
    """Every agent id that was drawn is taken, which chance cannot explain."""


def mint_agent_id(backend_type: BackendType, digits: str | None = None) -> str:
    """`scaler-<type>-<12 lower-case hex>`; unique by primary key, drawn again on conflict."""
    return f"{AGENT_ID_PREFIX}{backend_type.value}-{digits or secrets.token_hex(_ID_BYTES)}"


def _digits() -> Iterator[str]:
    """Of one id at a time; the system is asked for those of many."""
    width = 2 * _ID_BYTES
    while True:
        drawn = secrets.token_hex(_ID_BYTES * DRAWN_AT_ONCE)
        yield from (drawn[at : at + width] for at in range(0, len(drawn), width))


def is_minted(agent_id: str) -> bool:
    """Whether only a spawn row can stand for such an id; every other agent is a static one."""
    return agent_id.startswith(AGENT_ID_PREFIX)


@dataclass(slots=True)
class Reservations:
    """Makes the rows of one decision; what spawns have in common is worked out once."""

    situation: Situation
    revision_id: int
    owner: str
    windows: Windows
    spawn_timeouts: Mapping[str, float]
    """Seconds, of the organisations that have their own."""
    _blueprints: dict[tuple[str, int, str | None], Blueprint] = field(default_factory=dict)
    _digits: Iterator[str] = field(default_factory=_digits)

    def row(
        self,
        scaler: Scaler,
        label_set: LabelSet,
        machine_id: str | None,
        shape: Shape,
        request: Waiting | None,
        digest: str | None = None,
    ) -> NewSpawn:
        """A spawn for a request, or (None) one ahead of demand, with what it is made from.

        Fields come in their order: names would take a third of the time.
        """
        org = None if request is None else request.org
        requests, limits = shape.requests, shape.limits
        return NewSpawn(
            self._blueprint(scaler, label_set, machine_id),
            mint_agent_id(scaler.type, next(self._digits)),
            request is None,
            self.spawn_timeouts.get(org or "", self.windows.spawn_timeout_seconds),
            requests.cpu_millis,
            requests.memory_bytes,
            limits.cpu_millis,
            limits.memory_bytes,
            None if request is None else request.job_id,
            None if request is None else request.run_id,
            org,
            digest,
        )

    def _blueprint(self, scaler: Scaler, label_set: LabelSet, machine_id: str | None) -> Blueprint:
        key = (scaler.name, label_set.index, machine_id)
        found = self._blueprints.get(key)
        if found is None:
            found = self._blueprints[key] = self._drawn(scaler, label_set, machine_id)
        return found

    def _drawn(self, scaler: Scaler, label_set: LabelSet, machine_id: str | None) -> Blueprint:
        its = offer(scaler, label_set, self.situation.facts_of(scaler, machine_id))
        return Blueprint(
            scaler=scaler.name,
            backend_type=scaler.type.value,
            revision_id=self.revision_id,
            label_set_index=label_set.index,
            label_set=label_set.labels,
            agent_labels=its.agent,
            gate=tuple(sorted(its.gate)),
            roles=tuple(sorted(role.value for role in scaler.roles)),
            targets=scaler.provisioning_targets,
            machine_id=machine_id,
            pool=scaler.machine_pool if scaler.type.is_local else None,
            spawn_slots=scaler.max_concurrent_spawns,
            owner=self.owner,
        )


def reserve(
    connection: Connection, rows: Sequence[NewSpawn], *, hint_after: float
) -> list[NewSpawn]:
    """Insert spawns; an agent id that is taken is drawn again. Returns them as they were stored.

    Raises:
        AgentIdsExhausted: sixteen draws in a row were taken.
    """
    left, done = list(rows), []
    for _ in range(MOST_DRAWS):
        stored = spawns.insert(connection, left, hint_after=hint_after)
        done += [row for row in left if row.agent_id in stored]
        left = [
            row._replace(agent_id=mint_agent_id(BackendType(row.blueprint.backend_type)))
            for row in left
            if row.agent_id not in stored
        ]
        if not left:
            return done
    raise AgentIdsExhausted
