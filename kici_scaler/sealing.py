"""Job payloads and registry credentials cross the broker and the database sealed.

A caller seals to the cluster's public key (a libsodium sealed box: anyone may seal, only
the cluster opens, and nobody learns who sealed). The private keys are in one file that
only its owner may read; the process that hands a payload to an agent opens it. The file
holds several keys, so that they can be changed: the newest seals, all of them open.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, SealedBox
from nacl.public import PublicKey as BoxKey

from kici_scaler.errors import ExitCode, InvalidInput, KiciError

_FILE_VERSION = 1
_KEY_ID_LENGTH = 16
_KEY_BYTES = 32
# Kept, since finding its public half is half of the work of opening.
_private = lru_cache(maxsize=16)(PrivateKey)


class SealingError(KiciError):
    """Something sealed, or a key, is not what it should be."""


class UnreadableKeys(SealingError):
    """The file of private sealing keys cannot be used."""

    exit_code = ExitCode.UNREADABLE


class UnknownKey(SealingError, InvalidInput):
    """Sealed to a key that this cluster does not have (any more)."""


class DamagedEnvelope(SealingError, InvalidInput):
    """Not sealed to the key it names, or changed on the way."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """What callers seal with. `key_id` is derived from the key itself."""

    key_id: str
    public_key: str
    """32 bytes in base64."""

    def as_json(self) -> dict[str, str]:
        """`{keyId, publicKey}`, as the gateway hands it out."""
        return {"keyId": self.key_id, "publicKey": self.public_key}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PublicKey:
        """The key in `{keyId, publicKey}`.

        Raises:
            SealingError: a field is missing, or this is no such key.
        """
        key_id, public_key = value.get("keyId"), value.get("publicKey")
        if not isinstance(key_id, str) or not isinstance(public_key, str):
            raise SealingError("a public sealing key has the fields keyId and publicKey")
        if len(_decoded(public_key)) != _KEY_BYTES:
            raise SealingError(f"publicKey of {key_id} is not 32 bytes in base64")
        return cls(key_id, public_key)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Something sealed: safe to store, send and log."""

    key_id: str
    sealed: str
    """The sealed box in base64."""

    def as_json(self) -> dict[str, str]:
        """`{keyId, sealed}`, as it stands in requests and rows."""
        return {"keyId": self.key_id, "sealed": self.sealed}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Envelope:
        """The envelope in `{keyId, sealed}`.

        Raises:
            DamagedEnvelope: a field is missing or no text.
        """
        key_id, sealed = value.get("keyId"), value.get("sealed")
        if not isinstance(key_id, str) or not isinstance(sealed, str):
            raise DamagedEnvelope("an envelope has the fields keyId and sealed, both text")
        return cls(key_id, sealed)


@dataclass(frozen=True, slots=True)
class SealingKey:
    """A private key of the cluster; `created_at` is in epoch seconds."""

    key_id: str
    created_at: int
    private_key: bytes = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """The half that callers may have."""
        return PublicKey(self.key_id, _encoded(bytes(PrivateKey(self.private_key).public_key)))


@dataclass(frozen=True, slots=True)
class SealingKeys:
    """All private keys of a cluster, oldest first; never empty."""

    keys: tuple[SealingKey, ...]

    @property
    def newest(self) -> SealingKey:
        """The key that callers should seal to."""
        return self.keys[-1]

    def by_id(self, key_id: str) -> SealingKey:
        """The key of that id.

        Raises:
            UnknownKey: there is none.
        """
        for key in self.keys:
            if key.key_id == key_id:
                return key
        raise UnknownKey(
            f"sealed to key {key_id[:40]!r}, which this cluster does not have",
            hint="fetch the current key from the gateway's /v1/sealing-key and seal again",
        )


def generate_key() -> SealingKey:
    """A new key."""
    private = PrivateKey.generate()
    return SealingKey(_key_id(private), int(time.time()), bytes(private))


def seal(public: PublicKey, plaintext: bytes) -> Envelope:
    """Seal something so that only the cluster opens it; different each time.

    Raises:
        SealingError: the key is none.
    """
    try:
        sealed = SealedBox(BoxKey(_decoded(public.public_key))).encrypt(plaintext)
    except CryptoError as problem:
        raise SealingError(f"{public.key_id} is no key to seal with: {problem}") from problem
    return Envelope(public.key_id, _encoded(sealed))


def open_envelope(keys: SealingKeys, envelope: Envelope) -> bytes:
    """What was sealed.

    Raises:
        UnknownKey: sealed to a key that is not among these.
        DamagedEnvelope: it does not open.
    """
    key = keys.by_id(envelope.key_id)
    try:
        return SealedBox(_private(key.private_key)).decrypt(_decoded(envelope.sealed))
    except (CryptoError, SealingError, ValueError, TypeError) as problem:
        raise DamagedEnvelope(
            f"an envelope for key {envelope.key_id} does not open",
            hint="seal with the public key exactly as the gateway hands it out",
        ) from problem


def load_keys(path: Path) -> SealingKeys:
    """The keys in a file.

    Raises:
        UnreadableKeys: there is none, others may read it, or it is not a file of keys.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as problem:
        raise UnreadableKeys(
            f"there is no file of sealing keys at {path}",
            hint="`kici-scaler up` makes one; other set-ups point KICI_SEAL_KEYS_PATH at theirs",
        ) from problem
    except (OSError, UnicodeDecodeError) as problem:
        raise UnreadableKeys(f"the sealing keys at {path} cannot be read: {problem}") from problem
    if mode & 0o077:
        raise UnreadableKeys(
            f"the sealing keys at {path} may be read by others (mode {mode:04o})",
            hint=f"chmod 600 {path}",
        )
    return _parsed(text, path)


def ensure_keys(path: Path) -> SealingKeys:
    """The keys in a file, which is made with one new key if it is not there.

    However many processes do this at once, all get the same keys.

    Raises:
        UnreadableKeys: it cannot be made or used.
    """
    if not path.exists():
        try:
            _write(path, [generate_key()], replace=False)
        except OSError as problem:
            raise UnreadableKeys(f"no sealing keys can be kept at {path}: {problem}") from problem
    return load_keys(path)


def add_key(path: Path) -> SealingKeys:
    """Add a new key to a file, to seal with from now on; the others go on to open.

    Raises:
        UnreadableKeys: the file cannot be used or written.
    """
    keys = (*load_keys(path).keys, generate_key())
    try:
        _write(path, keys, replace=True)
    except OSError as problem:
        raise UnreadableKeys(f"the new key cannot be written to {path}: {problem}") from problem
    return SealingKeys(keys)


def _parsed(text: str, path: Path) -> SealingKeys:
    try:
        document = json.loads(text)
        if document["version"] != _FILE_VERSION:
            raise ValueError(f"version {document['version']} is not {_FILE_VERSION}")
        keys = tuple(_parsed_key(each) for each in document["keys"])
        if not keys:
            raise ValueError("no keys in it")
    except (ValueError, KeyError, TypeError, SealingError) as problem:
        raise UnreadableKeys(
            f"{path} is not a file of sealing keys: {problem}",
            hint="restore it from a backup: without its keys, nothing sealed to them opens",
        ) from problem
    return SealingKeys(keys)


def _parsed_key(value: Mapping[str, Any]) -> SealingKey:
    private = PrivateKey(_decoded(value["privateKey"]))
    if _key_id(private) != value["keyId"]:
        raise ValueError(f"key {value['keyId']} is not the key of that id")
    return SealingKey(value["keyId"], int(value["createdAt"]), bytes(private))


def _write(path: Path, keys: Iterable[SealingKey], *, replace: bool) -> None:
    """Write the file as a whole; without `replace`, whoever was first wins."""
    stored = [
        {"keyId": key.key_id, "createdAt": key.created_at, "privateKey": _encoded(key.private_key)}
        for key in keys
    ]
    document = {"version": _FILE_VERSION, "keys": stored}
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            Path(temporary).replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(temporary)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _key_id(private: PrivateKey) -> str:
    return hashlib.sha256(bytes(private.public_key)).hexdigest()[:_KEY_ID_LENGTH]


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise SealingError(f"not base64: {problem}") from problem
