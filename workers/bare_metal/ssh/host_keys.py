"""Which host keys are trusted. A key is never taken on because a machine showed it."""

from __future__ import annotations

import base64
import binascii
import hashlib

import paramiko
from paramiko.pkey import UnknownKeyType

from workers.bare_metal.ssh.errors import HostKeyRefused
from workers.bare_metal.ssh.target import Target
from workers.errors import Unreachable

_NOT_KEYS = (paramiko.SSHException, UnknownKeyType)


def trusted_keys(target: Target) -> paramiko.HostKeys:
    """The keys that this machine may show: the pinned one, or those of its `known_hosts`.

    Raises:
        Unreachable: the pinned key is no key, or the file cannot be read.
    """
    keys = paramiko.HostKeys()
    if target.host_key is not None:
        pinned = parse_key(target.host_key)
        keys.add(target.known_as, pinned.get_name(), pinned)
        return keys
    try:
        keys.load(str(target.known_hosts))
    except FileNotFoundError:
        return keys
    except OSError as error:
        raise Unreachable(
            f"the keys of `{target.place}` cannot be read: {error}",
            hint="correct `knownHostsFile`, or pin the key with `hostKey`",
        ) from error
    return keys


def parse_key(text: str) -> paramiko.PKey:
    """The public key in `<type> <base64> [comment]`.

    Raises:
        Unreachable: it is none.
    """
    kind, _, rest = text.strip().partition(" ")
    blob = rest.split(" ")[0]
    try:
        return paramiko.PKey.from_type_string(kind, base64.b64decode(blob, validate=True))
    except (*_NOT_KEYS, binascii.Error, ValueError, IndexError) as error:
        raise Unreachable(
            f"`hostKey` is no public key: {error}",
            hint="write it as in a `.pub` file: `ssh-ed25519 AAAA…`",
        ) from error


def as_line(key: paramiko.PKey) -> str:
    """A key as `hostKey` has it."""
    return f"{key.get_name()} {key.get_base64()}"


def fingerprint(key: paramiko.PKey) -> str:
    """`SHA256:…`, as `ssh-keygen -lf` prints it."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def unknown(target: Target, key: paramiko.PKey) -> HostKeyRefused:
    """The refusal of a machine of which no key is known."""
    where = target.known_hosts
    return HostKeyRefused(
        f"the host key of `{target.place}` is not known: it showed {key.get_name()} "
        f"{fingerprint(key)}",
        shown=as_line(key),
        hint=f"compare that with `ssh-keygen -lf` on the machine, then pin it as "
        f"`hostKey: {as_line(key)}` or add it to {where}",
    )


def different(target: Target, key: paramiko.PKey) -> HostKeyRefused:
    """The refusal of a machine that showed another key than the one that is trusted."""
    source = "`hostKey`" if target.host_key is not None else str(target.known_hosts)
    return HostKeyRefused(
        f"the host key of `{target.place}` is not the one that is trusted: it showed "
        f"{key.get_name()} {fingerprint(key)}",
        shown=as_line(key),
        hint="somebody may answer in the machine's place; if it was installed anew, "
        f"correct {source}",
    )


class RefuseUnknown(paramiko.MissingHostKeyPolicy):
    """Refuses each key that is not known, and says what was shown."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def missing_host_key(
        self, _client: paramiko.SSHClient, _hostname: str, key: paramiko.PKey
    ) -> None:
        """
        Raises:
            HostKeyRefused: always.
        """
        raise unknown(self._target, key)
