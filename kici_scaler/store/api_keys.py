"""API keys: who may use the front, for what, and until when; only hashes stand here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.engine import Row

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.store.bulk import sql


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    """One key. `is_valid` is false once it expired or was revoked."""

    id: str
    name: str
    scope: KeyScope
    secret_hash: bytes = field(repr=False)
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    is_valid: bool
    labels: tuple[str, ...] | None = None
    """Of scope agent: the labels its agents may have; None for any that is not derived."""
    gate: tuple[str, ...] = ()
    """Of scope agent: what a job must ask for by name to be served by its agents."""


_COLUMNS = """
    id, name, scope, secret_hash, created_at, created_by, expires_at, last_used_at, revoked_at,
    revoked_at IS NULL AND coalesce(expires_at > clock_timestamp(), true) AS is_valid,
    labels, gate
"""


def insert(
    connection: Connection,
    *,
    key_id: str,
    name: str,
    scope: KeyScope,
    secret_hash: bytes,
    created_by: str,
    ttl_seconds: float | None = None,
    labels: Sequence[str] | None = None,
    gate: Sequence[str] = (),
) -> ApiKeyRow | None:
    """Store a new key; None when a live key has that name."""
    row = connection.execute(
        sql(
            f"""
            INSERT INTO api_keys
                (id, name, scope, secret_hash, created_by, expires_at, labels, gate)
            VALUES (:id, :name, :scope, :hash, :by,
                    clock_timestamp() + make_interval(secs => CAST(:ttl AS double precision)),
                    :labels, :gate)
            ON CONFLICT DO NOTHING
            RETURNING {_COLUMNS}
        """,
            "labels",
            "gate",
        ),
        {
            "id": key_id,
            "name": name,
            "scope": scope.value,
            "hash": secret_hash,
            "by": created_by,
            "ttl": ttl_seconds,
            "labels": None if labels is None else list(labels),
            "gate": list(gate),
        },
    ).one_or_none()
    return None if row is None else _key(row)


def find(connection: Connection, key_id: str) -> ApiKeyRow | None:
    """The key of that id."""
    row = connection.execute(
        sql(f"SELECT {_COLUMNS} FROM api_keys WHERE id = :id"), {"id": key_id}
    ).one_or_none()
    return None if row is None else _key(row)


def find_live(connection: Connection, id_or_name: str) -> ApiKeyRow | None:
    """The key of that id or name that was not revoked."""
    row = connection.execute(
        sql(f"""
            SELECT {_COLUMNS} FROM api_keys
            WHERE (id = :key OR name = :key) AND revoked_at IS NULL
            ORDER BY id = :key DESC LIMIT 1
        """),
        {"key": id_or_name},
    ).one_or_none()
    return None if row is None else _key(row)


def touch(connection: Connection, key_id: str, *, at_most_every_seconds: float) -> None:
    """Note that a key was used, unless that was noted lately."""
    connection.execute(
        sql("""
            UPDATE api_keys SET last_used_at = clock_timestamp()
            WHERE id = :id AND coalesce(
                last_used_at < clock_timestamp() - make_interval(secs => :pause), true)
        """),
        {"id": key_id, "pause": at_most_every_seconds},
    )


def revoke(connection: Connection, key_id: str) -> bool:
    """Make a key worthless; False when it is so already or unknown."""
    result = connection.execute(
        sql("""
            UPDATE api_keys SET revoked_at = clock_timestamp()
            WHERE id = :id AND revoked_at IS NULL
        """),
        {"id": key_id},
    )
    return result.rowcount == 1


def all_keys(connection: Connection) -> list[ApiKeyRow]:
    """Every key, also revoked ones, newest first."""
    rows = connection.execute(sql(f"SELECT {_COLUMNS} FROM api_keys ORDER BY created_at DESC, id"))
    return [_key(row) for row in rows]


def _key(row: Row[tuple[object, ...]]) -> ApiKeyRow:
    values = dict(row._mapping)
    values["scope"] = KeyScope(values["scope"])
    values["secret_hash"] = bytes(values["secret_hash"])
    values["labels"] = None if values["labels"] is None else tuple(values["labels"])
    values["gate"] = tuple(values["gate"])
    return ApiKeyRow(**values)
