"""The configuration that decides now, parsed once a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection, Engine

from kici_scaler.domain.labels import MachineFacts
from kici_scaler.domain.routing import RoutingTable
from kici_scaler.domain.scalers import Cluster, Scaler
from kici_scaler.scalers_file import cluster_from_document
from kici_scaler.service.remembered import Remembered
from kici_scaler.store import revisions
from kici_scaler.store.surroundings import Surroundings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Revision:
    """One accepted configuration, parsed."""

    id: int
    cluster: Cluster


EMPTY = Revision(0, Cluster())
Database = tuple[object, ...]
"""What tells one database from another; an engine's URL is written out for each comparison."""
_MOST_PARSED = 64
"""Agents of many revisions may live at once, and each is asked for whenever one of them ends."""
_MOST_TABLES = 16
_parsed: Remembered[tuple[Database, int], Cluster] = Remembered(_MOST_PARSED)
"""By database too: a process may serve one installation after another, as tests do."""
_tables: Remembered[
    tuple[int, frozenset[tuple[str, tuple[MachineFacts, ...]]]], tuple[Cluster, RoutingTable]
] = Remembered(_MOST_TABLES)

_last_tables: Remembered[Database, RoutingTable] = Remembered(_MOST_TABLES)


def database_of(engine: Engine) -> Database:
    """The database that an engine is for."""
    url = engine.url
    return url.host, url.port, url.database, url.username, *url.query.items()


def active(connection: Connection) -> Revision:
    """The active revision; an empty one before the first activation."""
    return _or_empty(connection, revisions.active_id(connection))


def active_of(connection: Connection, seen: Surroundings) -> Revision:
    """The one that was active at that moment."""
    return _or_empty(connection, seen.revision_id)


def _or_empty(connection: Connection, revision_id: int | None) -> Revision:
    return EMPTY if revision_id is None else by_id(connection, revision_id)


def by_id(connection: Connection, revision_id: int) -> Revision:
    """A revision by its id; documents never change, so each is parsed once a process.

    Raises:
        NotFound: there is no such revision.
    """
    cluster = _parsed.get(
        (database_of(connection.engine), revision_id),
        lambda: cluster_from_document(revisions.document(connection, revision_id)),
    )
    return Revision(revision_id, cluster)


def scaler_of(connection: Connection, revision_id: int, name: str) -> Scaler | None:
    """A scaler as a revision had it; None when this version cannot read that revision.

    Rows outlive the version that wrote them: one that nobody understands any more must not
    hold up the others.
    """
    try:
        return by_id(connection, revision_id).cluster.scaler(name)
    except ValueError as error:
        log.error("configuration cannot be read", revision=revision_id, error=str(error)[:500])
        return None


def table_of(
    connection: Connection, revision: Revision, facts: Mapping[str, tuple[MachineFacts, ...]]
) -> RoutingTable:
    """The routing table of a revision on these kinds of machines; kept between calls."""
    key = (revision.id, frozenset(facts.items()))
    of, table = _tables.get(key, lambda: _built(revision.cluster, facts))
    if of is not revision.cluster:
        _, table = _tables.keep(key, _built(revision.cluster, facts))
    return _last_tables.keep(database_of(connection.engine), table)


def table_seen_last(engine: Engine) -> RoutingTable | None:
    """The table by which this process routed last; good for what may be wrong."""
    return _last_tables.known(database_of(engine))


def _built(
    cluster: Cluster, facts: Mapping[str, tuple[MachineFacts, ...]]
) -> tuple[Cluster, RoutingTable]:
    return cluster, RoutingTable.build(cluster, facts)
