"""Live settings: read, changed within their bounds, put back; each change is audited.

Crash table: each change is one transaction; a killed process has changed all or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from kici_scaler.domain import knobs
from kici_scaler.domain.knobs import Knob
from kici_scaler.errors import InvalidInput, NotFound
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import audit, settings
from kici_scaler.store.engine import transaction


class Source(StrEnum):
    """Where an effective value comes from."""

    DEFAULT = "default"
    CLUSTER = "cluster"
    ORGANISATION = "organisation"


@dataclass(frozen=True, slots=True)
class Setting:
    """A knob, the value that counts, and where that comes from."""

    knob: Knob
    value: float
    source: Source
    changed_by: str | None = None
    changed_at: datetime | None = None


class BadSetting(InvalidInput):
    """The value is out of its bounds, or contradicts another; nothing changed."""


def all_settings(runtime: Runtime, org: str | None = None) -> list[Setting]:
    """Every setting as it counts for the cluster, or (where it may differ) for one org."""
    with transaction(runtime.engine) as connection:
        return _effective(connection, org)


def get(runtime: Runtime, name: str, org: str | None = None) -> Setting:
    """One setting as it counts.

    Raises:
        NotFound: there is no such setting.
    """
    knob = _knob(name, org)
    return next(each for each in all_settings(runtime, org) if each.knob is knob)


def change(
    runtime: Runtime, name: str, value: float, *, actor: str, org: str | None = None
) -> Setting:
    """Store a value; it counts from the next use on.

    Raises:
        NotFound: there is no such setting.
        BadSetting: the value is out of bounds, or contradicts another effective value.
    """
    knob = _knob(name, org)
    ours = knobs.to_ours(name, value)
    problem = knob.problem(ours)
    if problem is not None:
        raise BadSetting(problem)
    with transaction(runtime.engine) as connection:
        settings.lock(connection)
        stored = {each.knob.key: each.value for each in _effective(connection, org)}
        for contradiction in knobs.contradictions({**stored, knob.key: ours}):
            raise BadSetting(contradiction, hint="change the other value first")
        scope = org or settings.CLUSTER
        settings.put(connection, knob.key, ours, changed_by=actor, scope=scope)
        detail = {"old": stored[knob.key], "new": ours, "org": org}
        audit.record(connection, actor, "setting", knob.key, detail)
        return next(each for each in _effective(connection, org) if each.knob is knob)


def reset(runtime: Runtime, name: str, *, actor: str, org: str | None = None) -> Setting:
    """Go back to what counts without a stored value.

    Raises:
        NotFound: there is no such setting.
        BadSetting: that value would contradict another.
    """
    knob = _knob(name, org)
    with transaction(runtime.engine) as connection:
        settings.lock(connection)
        settings.reset(connection, knob.key, scope=org or settings.CLUSTER)
        found = _effective(connection, org)
        for contradiction in knobs.contradictions({each.knob.key: each.value for each in found}):
            raise BadSetting(contradiction, hint="change the other value first")
        audit.record(connection, actor, "setting-reset", knob.key, {"org": org})
        return next(each for each in found if each.knob is knob)


def _knob(name: str, org: str | None) -> Knob:
    knob = knobs.find(name)
    if knob is None:
        raise NotFound(
            f"there is no setting `{name}`", hint="`kici-scaler settings list` names them"
        )
    if org and not knob.per_org:
        raise BadSetting(f"`{knob.key}` is the cluster's; an organisation cannot have its own")
    return knob


def _effective(connection: Connection, org: str | None) -> list[Setting]:
    scopes = {row.key: row for row in settings.stored(connection, settings.CLUSTER)}
    its_own = {row.key: row for row in settings.stored(connection, org)} if org else {}
    found = []
    for knob in knobs.KNOBS:
        source, row = Source.DEFAULT, None
        if knob.key in its_own and knob.per_org:
            source, row = Source.ORGANISATION, its_own[knob.key]
        elif knob.key in scopes:
            source, row = Source.CLUSTER, scopes[knob.key]
        found.append(
            Setting(knob, knob.default, source)
            if row is None
            else Setting(knob, float(row.value), source, row.changed_by, row.changed_at)
        )
    return found
