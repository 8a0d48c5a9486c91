"""API keys: made, listed, revoked, and told apart from guesses.

A token reads `kici_<scope>_<id>_<random>`: the id finds the row, the whole token's hash
must match. The token itself exists only where it was printed.

Crash table: each use case is one transaction. A key that was stored and never printed
(`kill -9` after COMMIT) is worth nothing to anyone and can be revoked by its name.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from kici_scaler.domain.key_scope import KeyScope
from kici_scaler.domain.labels import canonical, label_problem
from kici_scaler.errors import Conflict, InvalidInput, NotFound
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import api_keys, audit
from kici_scaler.store.api_keys import ApiKeyRow
from kici_scaler.store.engine import transaction

USED_SECONDS: Final = 60.0
"""The use of a key is noted at most this often."""
MOST_NAME: Final = 64
_TOKEN = re.compile(r"kici_(operator|dispatcher|agent)_([0-9a-f]{12})_([A-Za-z0-9_-]{32,128})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; its token is shown once and kept nowhere."""

    row: ApiKeyRow
    token: str = field(repr=False)


def create(
    runtime: Runtime,
    *,
    scope: KeyScope,
    name: str,
    ttl_seconds: float | None = None,
    actor: str = "operator",
    labels: Sequence[str] | None = None,
    gate: Sequence[str] = (),
) -> NewKey:
    """Make a key.

    Args:
        labels: of scope agent, the labels its agents may have; None for any but derived ones.
        gate: of scope agent, what a job must ask for by name to be served by its agents.

    Raises:
        InvalidInput: the name or time to live is none.
        Conflict: a live key has that name.
        DatabaseUnreachable: whether it was stored is not known; its token is lost anyway.
    """
    _check(name, ttl_seconds)
    allowed, mandatory = _labels_of(scope, labels, gate)
    key_id = secrets.token_hex(6)
    token = f"kici_{scope.value}_{key_id}_{secrets.token_urlsafe(32)}"
    with transaction(runtime.engine) as connection:
        row = _insert(
            connection, key_id, name, scope, token, actor, ttl_seconds, allowed, mandatory
        )
    return NewKey(row, token)


def ensure(runtime: Runtime, *, scope: KeyScope, name: str, token: str, actor: str = "up") -> None:
    """Let a token that stands in a file be a key, however often this is called.

    Raises:
        InvalidInput: the token is not of this scope, or not a token; see `new_token`.
        Conflict: a live key of another id has that name.
    """
    parts = _parts(token)
    if parts is None or parts[0] is not scope:
        raise InvalidInput(f"the token of key {name!r} is not a {scope} key's")
    _check(name, None)
    with transaction(runtime.engine) as connection:
        if api_keys.find(connection, parts[1]) is None:
            _insert(connection, parts[1], name, scope, token, actor, None)


def new_token(scope: KeyScope) -> str:
    """A token that no key knows yet, for `ensure`."""
    return f"kici_{scope.value}_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"


def revoke(runtime: Runtime, id_or_name: str, *, actor: str = "operator") -> ApiKeyRow:
    """Make a key worthless within seconds, everywhere.

    Raises:
        NotFound: no live key goes by that id or name.
    """
    with transaction(runtime.engine) as connection:
        row = api_keys.find_live(connection, id_or_name)
        if row is None or not api_keys.revoke(connection, row.id):
            raise NotFound(
                f"no live key has the id or name {id_or_name!r}", hint="see `kici-scaler keys list`"
            )
        audit.record(connection, actor, "key.revoke", row.name, {"id": row.id})
    return row


def listed(runtime: Runtime) -> list[ApiKeyRow]:
    """Every key, also revoked and expired ones, newest first."""
    with transaction(runtime.engine) as connection:
        return api_keys.all_keys(connection)


def authenticate(runtime: Runtime, token: str) -> ApiKeyRow | None:
    """The valid key behind a token; None for anything else.

    Raises:
        DatabaseUnreachable: it could not be told.
    """
    if _parts(token) is None:
        return None
    with transaction(runtime.engine) as connection:
        return known(connection, token)


def known(connection: Connection, token: str) -> ApiKeyRow | None:
    """The same within a transaction; the key counts as used."""
    parts = _parts(token)
    if parts is None:
        return None
    row = api_keys.find(connection, parts[1])
    stored = row.secret_hash if row is not None else bytes(32)
    matches = hmac.compare_digest(stored, hashed(token))
    if row is None or not matches or not row.is_valid or row.scope is not parts[0]:
        return None
    api_keys.touch(connection, row.id, at_most_every_seconds=USED_SECONDS)
    return row


def still_valid(runtime: Runtime, key_id: str) -> ApiKeyRow | None:
    """The key of that id, unless it was revoked or has expired; for who showed it before.

    Raises:
        DatabaseUnreachable: it could not be told.
    """
    with transaction(runtime.engine) as connection:
        row = api_keys.find(connection, key_id)
    return row if row is not None and row.is_valid else None


def looks_like_a_key(token: str) -> bool:
    """Whether the text has the form of a token of any scope."""
    return _parts(token) is not None


def hashed(token: str) -> bytes:
    """What stands in the row instead of the token."""
    return hashlib.sha256(token.encode()).digest()


def _parts(token: str) -> tuple[KeyScope, str] | None:
    match = _TOKEN.fullmatch(token)
    return None if match is None else (KeyScope(match[1]), match[2])


def _check(name: str, ttl_seconds: float | None) -> None:
    if _NAME.fullmatch(name) is None or len(name) > MOST_NAME:
        raise InvalidInput(
            f"{name!r} is no name for a key",
            hint=f"use 1 to {MOST_NAME} letters, digits, dots, dashes and underscores",
        )
    if ttl_seconds is not None and not 0 < ttl_seconds <= 100 * 365 * 86_400:
        raise InvalidInput(f"a key cannot expire after {ttl_seconds:g} s")


def _labels_of(
    scope: KeyScope, labels: Sequence[str] | None, gate: Sequence[str]
) -> tuple[list[str] | None, list[str]]:
    """The same in their canonical form."""
    if scope is not KeyScope.AGENT and (labels is not None or gate):
        raise InvalidInput(f"a key of scope {scope} allows no labels: only agents have them")
    for label in (*(labels or ()), *gate):
        if (problem := label_problem(label)) is not None:
            raise InvalidInput(f"the label {label!r} {problem}")
    allowed = None if labels is None else sorted({canonical(label) for label in labels})
    return allowed, sorted({canonical(label) for label in gate})


def _insert(
    connection: Connection,
    key_id: str,
    name: str,
    scope: KeyScope,
    token: str,
    actor: str,
    ttl_seconds: float | None,
    labels: Sequence[str] | None = None,
    gate: Sequence[str] = (),
) -> ApiKeyRow:
    row = api_keys.insert(
        connection,
        key_id=key_id,
        name=name,
        scope=scope,
        secret_hash=hashed(token),
        created_by=actor,
        ttl_seconds=ttl_seconds,
        labels=labels,
        gate=gate,
    )
    if row is None:
        raise Conflict(
            f"a key named {name!r} exists already",
            hint=f"choose another name, or `kici-scaler keys revoke {name}` first",
        )
    audit.record(connection, actor, "key.create", name, {"id": key_id, "scope": scope.value})
    return row
