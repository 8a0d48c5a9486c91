"""Opening what a job sealed for the worker: its registry credentials, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kici_scaler.errors import KiciError
from kici_scaler.sealing import (
    Envelope,
    SealingError,
    UnreadableKeys,
    load_keys,
    open_envelope,
)
from workers.credentials import DEFAULT_USERNAME, RegistryCredentials
from workers.errors import Permanent


@dataclass(frozen=True, slots=True)
class Unsealer:
    """Opens envelopes with the cluster's keys, read anew each time so that rotation counts."""

    keys_path: Path | None

    def registry(self, sealed: Mapping[str, object] | None) -> RegistryCredentials | None:
        """The credentials a job's own image is pulled with; None when it brought none.

        Raises:
            Permanent: they cannot be opened or read; the job brought that on itself, unless
                this worker has no keys.
        """
        if sealed is None:
            return None
        if self.keys_path is None:
            raise Permanent(
                "the job's registry credentials cannot be opened: this worker has no keys",
                hint="set KICI_SEAL_KEYS_PATH for the backend worker",
            )
        try:
            opened = open_envelope(load_keys(self.keys_path), Envelope.from_json(sealed))
            return _credentials(json.loads(opened))
        except UnreadableKeys as error:
            raise Permanent(str(error), hint=error.hint) from error
        except (SealingError, ValueError) as error:
            raise Permanent(
                f"the job's registry credentials cannot be read: {_told(error)}", job_caused=True
            ) from error


def _credentials(value: object) -> RegistryCredentials:
    """From `{username, password, server}`, as the dispatcher's client seals them."""
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    password, server = value.get("password"), value.get("server")
    username = value.get("username") or DEFAULT_USERNAME
    if not isinstance(password, str) or not isinstance(username, str):
        raise ValueError("username and password are texts")
    return RegistryCredentials(password, username, server if isinstance(server, str) else None)


def _told(error: Exception) -> str:
    """Never the content: a parser's message may quote it."""
    return str(error) if isinstance(error, KiciError) else "not the JSON of credentials"
