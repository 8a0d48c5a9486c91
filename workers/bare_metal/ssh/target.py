"""Where a machine is and how it is known."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PORT = 22
DEFAULT_FOLDER = "~/.local/state/kici-scaler"
"""Where agents and the supervisor are kept on a machine, unless the scaler file says."""


@dataclass(frozen=True, slots=True)
class Target:
    """A machine reached by SSH, as the scaler file describes it; holds no secret.

    `key_file`: None asks the SSH agent of the worker. `host_key`: the pinned public key,
    `<type> <base64>`; None looks into `known_hosts_file` (None: the worker user's own).
    """

    address: str
    port: int = DEFAULT_PORT
    user: str | None = None
    key_file: str | None = None
    host_key: str | None = None
    known_hosts_file: str | None = None
    jump: Target | None = None
    folder: str = DEFAULT_FOLDER

    @classmethod
    def parse(cls, entry: Mapping[str, object]) -> Target:
        """From an entry of `machines` (or of `jumpHost`) in a validated scaler file."""
        jump, port = entry.get("jumpHost"), entry.get("port")
        return cls(
            address=str(entry["address"]),
            port=port if isinstance(port, int) else DEFAULT_PORT,
            user=_text(entry, "user"),
            key_file=_text(entry, "keyFile"),
            host_key=_text(entry, "hostKey"),
            known_hosts_file=_text(entry, "knownHostsFile"),
            jump=cls.parse(jump) if isinstance(jump, Mapping) else None,
            folder=_text(entry, "stateDir") or DEFAULT_FOLDER,
        )

    @property
    def place(self) -> str:
        """`address` or `address:port`, for people."""
        return self.address if self.port == DEFAULT_PORT else f"{self.address}:{self.port}"

    @property
    def known_as(self) -> str:
        """The name under which a `known_hosts` file lists it."""
        return self.address if self.port == DEFAULT_PORT else f"[{self.address}]:{self.port}"

    @property
    def login(self) -> str:
        """Whom to log in as."""
        return self.user or getpass.getuser()

    @property
    def known_hosts(self) -> Path:
        """The file of known keys that counts for it."""
        return Path(self.known_hosts_file or "~/.ssh/known_hosts").expanduser()


def _text(entry: Mapping[str, object], key: str) -> str | None:
    value = entry.get(key)
    return value if isinstance(value, str) and value else None
