"""Resume tokens: what lets one agent return through any gateway while its spawn lives."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Final

from kici_scaler.sealing import SealingKeys

_PURPOSE: Final = b"kici-scaler resume token 1"


class ResumeTokens:
    """Derived from the cluster's sealing keys, so every gateway knows them and none stores any.

    Issued with the newest key; one issued with an older key of the file stays good.
    """

    def __init__(self, keys: SealingKeys) -> None:
        self._secrets = [
            hmac.digest(key.private_key, _PURPOSE, sha256) for key in reversed(keys.keys)
        ]

    def issue(self, agent_id: str) -> str:
        """The token of an agent; the same each time."""
        return _token(self._secrets[0], agent_id)

    def is_valid(self, agent_id: str, token: str) -> bool:
        """Whether the token was issued to this very agent."""
        given = token.encode()
        matches = [
            hmac.compare_digest(_token(secret, agent_id).encode(), given)
            for secret in self._secrets
        ]
        return any(matches)


def _token(secret: bytes, agent_id: str) -> str:
    return hmac.new(secret, agent_id.encode(), sha256).hexdigest()
