"""Where a container runtime answers: named by the scaler, or found on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from workers.errors import NotDone


class Runtime(StrEnum):
    """Which program runs the containers; also what their logs are said to come from."""

    DOCKER = "docker"
    PODMAN = "podman"


_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of certificates for a remote runtime; None where the scaler names none."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """One container runtime: `unix:///path`, `tcp://host:port`, `ssh://user@host`."""

    url: str
    runtime: Runtime
    tls: Tls | None = None

    @property
    def socket_path(self) -> str | None:
        """Its socket, where that is on this machine."""
        return self.url.removeprefix("unix://") if self.url.startswith("unix://") else None

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine."""
        return self.socket_path is not None or urlsplit(self.url).hostname in _LOOPBACK

    def as_json(self) -> dict[str, str]:
        """It as plain text values; file names of certificates, never their content."""
        files = {} if self.tls is None else {
            "ca_file": self.tls.ca_file,
            "cert_file": self.tls.cert_file,
            "key_file": self.tls.key_file,
        }  # fmt: skip
        named = {key: value for key, value in files.items() if value is not None}
        secured = {} if self.tls is None else {"tls": "yes"}
        return {"engine": self.url, "runtime": self.runtime.value, **secured, **named}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Place | None:
        """The place that was written so; None when nothing of it was."""
        url = said.get("engine")
        if not isinstance(url, str) or not url:
            return None
        files = (said.get(key) for key in ("ca_file", "cert_file", "key_file"))
        tls = Tls(*files) if said.get("tls") else None
        return cls(url, Runtime(said.get("runtime", Runtime.DOCKER)), tls)


def place_of(
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    is_usable: Callable[[str], bool],
) -> Place:
    """The runtime of a scaler with these options.

    `is_usable` says whether a socket can be read and written. A scaler that names a `host` or
    a `socketPath` is believed; otherwise the usual sockets are tried, those of its `runtime`.

    Raises:
        NotDone: it names none and none is found.
    """
    hint = str(options.get("runtime") or "auto")
    if options.get("host"):
        return Place(str(options["host"]), _hinted(hint), _tls(options.get("tls")))
    if options.get("socketPath"):
        return _at_socket(str(options["socketPath"]))
    candidates = [path for path in usual_sockets(environment) if _fits(path, hint)]
    for path in candidates:
        if is_usable(path):
            return _at_socket(path)
    raise NotDone(
        f"no container runtime was found: none of {', '.join(candidates)} can be used",
        hint="install Docker or Podman, or set `host` or `socketPath` on the scaler",
    )


def usual_sockets(environment: Mapping[str, str]) -> Iterator[str]:
    """Where runtimes listen by default, in the order they are tried; the reference's."""
    yield "/var/run/docker.sock"
    yield "/run/podman/podman.sock"
    if environment.get("XDG_RUNTIME_DIR"):
        yield f"{environment['XDG_RUNTIME_DIR']}/podman/podman.sock"


def _at_socket(path: str) -> Place:
    return Place(f"unix://{path}", Runtime.PODMAN if "podman" in path else Runtime.DOCKER)


def _fits(path: str, hint: str) -> bool:
    return hint == "auto" or _at_socket(path).runtime == hint


def _hinted(hint: str) -> Runtime:
    return Runtime.PODMAN if hint == Runtime.PODMAN else Runtime.DOCKER


def _tls(written: Mapping[str, str] | None) -> Tls | None:
    if written is None:
        return None
    return Tls(written.get("caFile"), written.get("certFile"), written.get("keyFile"))
