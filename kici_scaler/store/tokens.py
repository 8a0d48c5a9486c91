"""Agent tokens: only their hashes stand here."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from kici_scaler.store.bulk import MOST_AT_ONCE, as_rows, sql


@dataclass(frozen=True, slots=True)
class MintedToken:
    """A fresh token for one agent; the secret exists only here and in the agent."""

    agent_id: str
    labels: tuple[str, ...]
    secret: str = field(repr=False)


def mint(agent_id: str, labels: Sequence[str]) -> MintedToken:
    """A 256-bit token bound to an agent id and its labels."""
    return MintedToken(agent_id, tuple(labels), secrets.token_urlsafe(32))


def hashed(secret: str) -> bytes:
    """What stands in the row instead of the secret."""
    return hashlib.sha256(secret.encode()).digest()


def store(connection: Connection, tokens: Iterable[MintedToken], *, ttl_seconds: float) -> None:
    """Store the hashes of fresh tokens."""
    connection.execute(
        sql("""
            INSERT INTO agent_tokens (token_hash, agent_id, labels, expires_at)
            SELECT decode(hash, 'hex'), agent_id, labels,
                   clock_timestamp() + make_interval(secs => :ttl)
            FROM jsonb_to_recordset(CAST(:rows AS jsonb))
              AS t(hash text, agent_id text, labels text[])
        """),
        {
            "rows": as_rows(
                {
                    "hash": hashed(token.secret).hex(),
                    "agent_id": token.agent_id,
                    "labels": token.labels,
                }
                for token in tokens
            ),
            "ttl": ttl_seconds,
        },
    )


LABELS = """
    SELECT labels FROM agent_tokens
    WHERE token_hash = :hash AND agent_id = :id AND expires_at > clock_timestamp()
"""
"""The labels that the token of that hash binds the agent to, if it is valid for it."""


def labels_of(connection: Connection, *, agent_id: str, secret: str) -> tuple[str, ...] | None:
    """The labels a valid token binds this agent to; None when it is not valid for it."""
    values = {"hash": hashed(secret), "id": agent_id}
    labels = connection.execute(sql(LABELS), values).scalar_one_or_none()
    return None if labels is None else tuple(labels)


def revoke(connection: Connection, agent_ids: Sequence[str]) -> None:
    """Make every token of these agents worthless."""
    connection.execute(
        sql("DELETE FROM agent_tokens WHERE agent_id = ANY(:ids)", "ids"),
        {"ids": list(agent_ids)},
    )


def purge_expired(connection: Connection) -> int:
    """Forget tokens past their end."""
    result = connection.execute(
        sql("""
            DELETE FROM agent_tokens WHERE token_hash = ANY(ARRAY(
                SELECT token_hash FROM agent_tokens WHERE expires_at < (SELECT clock_timestamp())
                ORDER BY expires_at LIMIT :most))
        """),
        {"most": MOST_AT_ONCE},
    )
    return result.rowcount
