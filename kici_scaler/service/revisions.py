"""The configuration that decides now, and how a new one takes over.

Crash table: activation is one transaction; a process killed before its commit changes
nothing, one killed after it leaves the new revision active for everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine

from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.routing import RoutingTable
from kici_scaler.domain.scalers import Cluster
from kici_scaler.scalers_file import cluster_from_document, load
from kici_scaler.store import revisions, section
from kici_scaler.store.engine import transaction


@dataclass(frozen=True, slots=True)
class Revision:
    """One accepted configuration, parsed."""

    id: int
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class Activation:
    """What activating a file did: nothing when the same document was active already."""

    revision_id: int
    changed: bool
    warnings: tuple[str, ...]


EMPTY = Revision(0, Cluster())
_parsed: dict[int, Cluster] = {}
_tables: dict[tuple[int, frozenset[tuple[str, tuple[MachineFacts, ...]]]], RoutingTable] = {}
_MOST_PARSED = 16


def active(connection: Connection) -> Revision:
    """The active revision; an empty one before the first activation."""
    revision_id = revisions.active_id(connection)
    return EMPTY if revision_id is None else by_id(connection, revision_id)


def by_id(connection: Connection, revision_id: int) -> Revision:
    """A revision by its id; documents never change, so each is parsed once a process."""
    cluster = _parsed.get(revision_id)
    if cluster is None:
        cluster = cluster_from_document(revisions.document(connection, revision_id))
        if len(_parsed) >= _MOST_PARSED:
            _parsed.pop(min(_parsed))
        _parsed[revision_id] = cluster
    return Revision(revision_id, cluster)


def table_of(revision: Revision, facts: Mapping[str, tuple[MachineFacts, ...]]) -> RoutingTable:
    """The routing table of a revision on these kinds of machines; kept between calls."""
    key = (revision.id, frozenset(facts.items()))
    table = _tables.get(key)
    if table is None:
        table = RoutingTable.build(revision.cluster, facts)
        if len(_tables) >= _MOST_PARSED:
            _tables.pop(next(iter(_tables)))
        _tables[key] = table
    return table


def activate_file(
    engine: Engine, path: Path, directory: Path | None = None, *, author: str
) -> Activation:
    """Validate a scaler file and make it the active revision.

    Raises:
        InvalidScalerFile: it breaks rules; nothing changed.
        UnreadableScalerFile: it cannot be read; nothing changed.
        DatabaseUnreachable: nothing is known to have changed.
    """
    loaded = load(path, directory)
    warnings = tuple(str(each) for each in loaded.warnings)
    with transaction(engine) as connection:
        section.bound_waits(connection, 10.0)
        section.enter(connection)
        current = revisions.active_id(connection)
        if current is not None and revisions.active_digest(connection) == loaded.digest:
            return Activation(current, changed=False, warnings=warnings)
        revision_id = revisions.activate(
            connection,
            document=loaded.document,
            digest=loaded.digest,
            source=str(path),
            author=author,
        )
    return Activation(revision_id, changed=True, warnings=warnings)
