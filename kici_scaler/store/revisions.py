"""Accepted configurations; exactly one is active."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from sqlalchemy import Connection

from kici_scaler.errors import NotFound
from kici_scaler.store.bulk import sql


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """One accepted configuration without its document."""

    id: int
    digest: str
    source: str
    author: str
    active: bool
    created_at: datetime
    summary: str
    """What it changed, in one line; empty for those accepted before that was written down."""


def active_id(connection: Connection) -> int | None:
    """The active revision's id, or None before the first activation."""
    return connection.execute(
        sql("SELECT id FROM config_revisions WHERE active")
    ).scalar_one_or_none()


def document(connection: Connection, revision_id: int) -> Mapping[str, object]:
    """The stored document of a revision.

    Raises:
        NotFound: there is no such revision.
    """
    stored = connection.execute(
        sql("SELECT document FROM config_revisions WHERE id = :id"), {"id": revision_id}
    ).scalar_one_or_none()
    if stored is None:
        raise NotFound(f"there is no revision {revision_id} of the configuration")
    return cast("Mapping[str, object]", stored)


def active_digest(connection: Connection) -> str | None:
    """Digest of the active document, or None."""
    return connection.execute(
        sql("SELECT digest FROM config_revisions WHERE active")
    ).scalar_one_or_none()


def activate(
    connection: Connection,
    *,
    document: Mapping[str, object],
    digest: str,
    source: str,
    author: str,
    summary: str = "",
) -> int:
    """Store a document as the active revision; call inside the admission section."""
    connection.execute(sql("UPDATE config_revisions SET active = false WHERE active"))
    revision = connection.execute(
        sql("""
            INSERT INTO config_revisions (digest, document, source, author, summary, active)
            VALUES (:digest, CAST(:document AS jsonb), :source, :author, :summary, true)
            RETURNING id
        """),
        {
            "digest": digest,
            "document": json.dumps(document),
            "source": source,
            "author": author,
            "summary": summary,
        },
    ).scalar_one()
    connection.execute(
        sql("""
            UPDATE scale_requests SET routed_scaler = NULL
            WHERE state = 'waiting' AND routed_scaler IS NOT NULL
        """)
    )
    return int(revision)


def before(connection: Connection, revision_id: int) -> int | None:
    """The revision accepted before this one."""
    return connection.execute(
        sql("SELECT max(id) FROM config_revisions WHERE id < :id"), {"id": revision_id}
    ).scalar_one_or_none()


def history(connection: Connection, limit: int = 50) -> list[RevisionRow]:
    """Accepted revisions, newest first."""
    rows = connection.execute(
        sql("""
            SELECT id, digest, source, author, active, created_at, summary
            FROM config_revisions ORDER BY id DESC LIMIT :n
        """),
        {"n": limit},
    )
    return [RevisionRow(**row._mapping) for row in rows]
