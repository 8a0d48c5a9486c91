"""The secrets that webhooks are signed with: one a target, two while one replaces the other."""

from __future__ import annotations

import base64
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml
from pydantic import SecretStr, TypeAdapter, ValidationError
from standardwebhooks.webhooks import Webhook

from kici_scaler.errors import ExitCode, KiciError

PREFIX: Final = "whsec_"
MOST_ACTIVE: Final = 2
"""The new one and the one it replaces."""
LEAST_BYTES: Final = 24
"""What Standard Webhooks asks of a secret at least."""
_SHAPE: TypeAdapter[dict[str, str | list[str]]] = TypeAdapter(dict[str, str | list[str]])
_HINT = 'write `{"https://host/path": "whsec_…"}`, or a list of two while a secret is replaced'


class UnusableSecrets(KiciError):
    """The secrets of webhooks cannot be used as they are."""

    exit_code = ExitCode.UNREADABLE


class NoSecret(UnusableSecrets):
    """Nothing is known to sign for a target with."""


@dataclass(frozen=True, slots=True)
class Signers:
    """What a target's webhooks are signed with, the newest first; never empty."""

    webhooks: tuple[Webhook, ...] = field(repr=False)


@dataclass(slots=True)
class TargetSecrets:
    """Secrets by target, from the environment and from a file that is read anew when it changes.

    The file wins. A target is looked up by its whole address, then by `scheme://host[:port]`.
    """

    environment: SecretStr | None = None
    path: Path | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _read_at: tuple[int, int] | None = field(default=None, repr=False)
    _found: Mapping[str, Signers] = field(default_factory=dict, repr=False)

    def of(self, target: str) -> Signers:
        """What to sign with.

        Raises:
            NoSecret: there is nothing for this target.
            UnusableSecrets: the file cannot be read or understood, at least for now.
        """
        known = self._all()
        address = urlsplit(target)
        found = known.get(target) or known.get(f"{address.scheme}://{address.netloc}")
        if found is None:
            raise NoSecret(
                f"no secret is known to sign for {target}",
                hint=f"{_HINT}, in KICI_WEBHOOK_SECRETS or the file of KICI_WEBHOOK_SECRETS_PATH",
            )
        return found

    def _all(self) -> Mapping[str, Signers]:
        with self._lock:
            state = _state_of(self.path)
            if state is None or state != self._read_at:
                self._found = {**self._of_environment(), **_of_file(self.path)}
                self._read_at = state
            return self._found

    def _of_environment(self) -> Mapping[str, Signers]:
        text = None if self.environment is None else self.environment.get_secret_value()
        return {} if not text else parse_secrets(text, "KICI_WEBHOOK_SECRETS")


def parse_secrets(text: str, where: str) -> Mapping[str, Signers]:
    """Signers by target, from JSON or YAML.

    Raises:
        UnusableSecrets: with the place and what is wrong, never with a secret.
    """
    try:
        stated = _SHAPE.validate_python(yaml.safe_load(text) or {})
    except (yaml.YAMLError, ValidationError) as error:
        raise UnusableSecrets(f"{where} does not map targets to secrets", hint=_HINT) from error
    return {target: _signers(value, f"{where}, {target}") for target, value in stated.items()}


def _signers(value: str | list[str], where: str) -> Signers:
    secrets = [value] if isinstance(value, str) else value
    if not 1 <= len(secrets) <= MOST_ACTIVE:
        raise UnusableSecrets(f"{where}: {len(secrets)} secrets, not one or two", hint=_HINT)
    return Signers(tuple(_webhook(each, where) for each in secrets))


def _webhook(secret: str, where: str) -> Webhook:
    hint = f"a secret is `{PREFIX}` and {LEAST_BYTES} to 64 random bytes in base64"
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError as error:
        raise UnusableSecrets(f"{where}: a secret is no base64 text", hint=hint) from error
    if len(key) < LEAST_BYTES:
        raise UnusableSecrets(f"{where}: a secret of {len(key)} bytes is too short", hint=hint)
    return Webhook(key)


def _of_file(path: Path | None) -> Mapping[str, Signers]:
    if path is None:
        return {}
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableSecrets(f"the secrets in {path} cannot be read: {error}") from error
    if mode & 0o077:
        raise UnusableSecrets(
            f"the secrets in {path} may be read by others (mode {mode:04o})",
            hint=f"chmod 600 {path}",
        )
    return parse_secrets(text, str(path))


def _state_of(path: Path | None) -> tuple[int, int] | None:
    """What changes with the file; (0, 0) without one."""
    if path is None:
        return 0, 0
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
