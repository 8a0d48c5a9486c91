"""What operators did, when, and to what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from kici_scaler.store.bulk import sql


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One operator action."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Mapping[str, object]


def record(
    connection: Connection, actor: str, action: str, subject: str, detail: Mapping[str, object]
) -> None:
    """Note an action in the transaction that performs it; `detail` holds no secrets."""
    connection.execute(
        sql("""
            INSERT INTO audit (actor, action, subject, detail)
            VALUES (:actor, :action, :subject, CAST(:detail AS jsonb))
        """),
        {
            "actor": actor,
            "action": action,
            "subject": subject,
            "detail": json.dumps(dict(detail), default=str),
        },
    )


def recent(connection: Connection, limit: int = 100) -> list[AuditRow]:
    """The latest actions, newest first."""
    rows = connection.execute(
        sql("SELECT id, at, actor, action, subject, detail FROM audit ORDER BY id DESC LIMIT :n"),
        {"n": limit},
    )
    return [AuditRow(**row._mapping) for row in rows]
