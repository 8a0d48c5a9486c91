"""Claims: one-time codes that provisioned agents exchange for credentials; only hashes here.

A claim's time runs from the first delivery that may have reached somebody. Until then it
has no end of its own: it lives as long as its spawn may still be delivered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from kici_scaler.store.bulk import MOST_AT_ONCE, as_rows, sql


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A claim for one agent; `code_hash` is SHA-256 of the code."""

    code_hash: bytes
    agent_id: str
    scaler: str
    labels: tuple[str, ...]
    orchestrator_url: str
    ttl_seconds: int
    token_ttl_seconds: int


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """What a redeemed code entitles to."""

    agent_id: str
    scaler: str
    labels: tuple[str, ...]
    orchestrator_url: str
    token_ttl_seconds: int


class Standing(StrEnum):
    """Why a code was not redeemed."""

    UNKNOWN = "unknown"
    CONSUMED = "consumed"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Unredeemed:
    """A code that is worth nothing, and whose it was, where that is known."""

    standing: Standing
    agent_id: str | None = None


def hashed(code: str) -> bytes:
    """What stands in the row instead of the code."""
    return hashlib.sha256(code.encode()).digest()


def insert(connection: Connection, claims: Iterable[NewClaim]) -> None:
    """Store claims whose time has not begun."""
    connection.execute(
        sql("""
            INSERT INTO claims (code_hash, agent_id, scaler, labels, orchestrator_url, ttl_seconds,
                                token_ttl_seconds)
            SELECT decode(hash, 'hex'), agent_id, scaler, labels, url, ttl, token_ttl
            FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS c(
                hash text, agent_id text, scaler text, labels text[], url text, ttl integer,
                token_ttl integer)
        """),
        {
            "rows": as_rows(
                {
                    "hash": claim.code_hash.hex(),
                    "agent_id": claim.agent_id,
                    "scaler": claim.scaler,
                    "labels": claim.labels,
                    "url": claim.orchestrator_url,
                    "ttl": claim.ttl_seconds,
                    "token_ttl": claim.token_ttl_seconds,
                }
                for claim in claims
            )
        },
    )


def begin_time(connection: Connection, agent_id: str, until: datetime) -> None:
    """A delivery may have reached somebody: the code works until then; the first one counts."""
    connection.execute(
        sql("""
            UPDATE claims SET expires_at = :until
            WHERE agent_id = :id AND expires_at IS NULL AND consumed_at IS NULL
        """),
        {"id": agent_id, "until": until},
    )


def consume(connection: Connection, code: str) -> ClaimRow | None:
    """Use a code up; None when it is worth nothing. At most one call ever gets a row."""
    row = connection.execute(
        sql("""
            UPDATE claims SET consumed_at = clock_timestamp()
            WHERE code_hash = :hash AND consumed_at IS NULL
              AND (expires_at IS NULL OR expires_at > clock_timestamp())
            RETURNING agent_id, scaler, labels, orchestrator_url, token_ttl_seconds
        """),
        {"hash": hashed(code)},
    ).one_or_none()
    return None if row is None else ClaimRow(**{**row._mapping, "labels": tuple(row.labels)})


def look_up(connection: Connection, code: str) -> Unredeemed:
    """Why a code was not redeemed; a second try of a used one is noted on the claim."""
    row = connection.execute(
        sql("""
            UPDATE claims SET reused_at = CASE WHEN consumed_at IS NULL THEN reused_at
                                               ELSE coalesce(reused_at, clock_timestamp()) END
            WHERE code_hash = :hash
            RETURNING agent_id, consumed_at IS NOT NULL AS consumed
        """),
        {"hash": hashed(code)},
    ).one_or_none()
    if row is None:
        return Unredeemed(Standing.UNKNOWN)
    return Unredeemed(Standing.CONSUMED if row.consumed else Standing.EXPIRED, row.agent_id)


def revoke(connection: Connection, agent_ids: Sequence[str]) -> None:
    """Make the codes of these agents worthless."""
    connection.execute(
        sql(
            """
            UPDATE claims SET expires_at = clock_timestamp()
            WHERE agent_id = ANY(:ids) AND consumed_at IS NULL
              AND (expires_at IS NULL OR expires_at > clock_timestamp())
            """,
            "ids",
        ),
        {"ids": list(agent_ids)},
    )


def reused(connection: Connection) -> int:
    """How many remembered codes somebody tried again after they were used."""
    row = connection.execute(sql("SELECT count(*) FROM claims WHERE reused_at IS NOT NULL"))
    return int(row.scalar_one())


def shift(connection: Connection, seconds: float) -> None:
    """Give running claims the time in which nobody could have redeemed them."""
    connection.execute(
        sql("""
            UPDATE claims SET expires_at = expires_at + make_interval(secs => :gap)
            FROM spawns s
            WHERE s.agent_id = claims.agent_id AND s.state IN ('spawning', 'booting')
              AND expires_at IS NOT NULL AND consumed_at IS NULL
        """),
        {"gap": seconds},
    )


def purge(connection: Connection, *, older_seconds: float) -> int:
    """Forget claims past their retention whose agent has no live row."""
    result = connection.execute(
        sql("""
            DELETE FROM claims WHERE code_hash = ANY(ARRAY(
                SELECT code_hash FROM claims c
                WHERE coalesce(expires_at, created_at)
                      < (SELECT clock_timestamp() - make_interval(secs => :older))
                  AND NOT EXISTS (SELECT 1 FROM spawns s WHERE s.agent_id = c.agent_id)
                ORDER BY coalesce(expires_at, created_at) LIMIT :most))
        """),
        {"older": older_seconds, "most": MOST_AT_ONCE},
    )
    return result.rowcount
