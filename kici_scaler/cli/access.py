"""Which gateway a command talks to, and with which key."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kici_scaler.embedded.profile import LocalProfile, load_profile
from kici_scaler.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from kici_scaler.cli.operator_client import OperatorClient
    from kici_scaler.client import DispatcherClient

URL_VARIABLE = "KICI_URL"
KEY_VARIABLE = "KICI_API_KEY"


@dataclass(frozen=True, slots=True)
class Access:
    """A gateway's base URL, and a key it knows."""

    url: str
    api_key: str = field(repr=False)


def find_access() -> Access:
    """The gateway of `KICI_URL` and `KICI_API_KEY`, else of the instance that runs here.

    A key of the instance that runs here is never sent to a gateway that the environment names.

    Raises:
        InvalidInput: a gateway is named, but no key for it.
        Unavailable: none is named, and none runs here.
    """
    url, key = os.environ.get(URL_VARIABLE, ""), os.environ.get(KEY_VARIABLE, "")
    if url and not key:
        raise InvalidInput(
            f"{URL_VARIABLE} is set, but {KEY_VARIABLE} is not",
            hint=f"Set {KEY_VARIABLE} to an API key of that gateway.",
        )
    if not url:
        profile = local_instance()
        url, key = _url_of(profile), key or profile_key(profile)
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(
            f"{URL_VARIABLE} is not the URL of a gateway: {url!r}",
            hint="Write http://HOST:PORT or https://HOST.",
        )
    return Access(url.rstrip("/"), key)


def local_instance() -> LocalProfile | None:
    """The instance on the folder of `KICI_DATA_DIR`, or the one started last; None: none runs."""
    folder = os.environ.get("KICI_DATA_DIR")
    return load_profile(Path(folder) if folder else None)


def profile_key(profile: LocalProfile | None) -> str:
    """The API key of a local instance."""
    return "" if profile is None else profile.api_key_path.read_text().strip()


def dispatcher() -> DispatcherClient:
    """A dispatcher's client of that gateway; close it, or use it as a context."""
    # Imported only now: help must not wait for it.
    from kici_scaler.client import DispatcherClient

    access = find_access()
    return DispatcherClient(access.url, access.api_key)


def operator() -> OperatorClient:
    """An operator's client of that gateway; use it as a context."""
    from kici_scaler.cli.operator_client import OperatorClient

    access = find_access()
    return OperatorClient(access.url, access.api_key)


def _url_of(profile: LocalProfile | None) -> str:
    if profile is None:
        raise Unavailable(
            f"no gateway is known: {URL_VARIABLE} is not set, and no `kici-scaler up` runs here",
            hint=f"Start `kici-scaler up`, or set {URL_VARIABLE} and {KEY_VARIABLE}.",
        )
    if profile.gateway_url is None:
        raise Unavailable(
            f"the instance on {profile.data_dir} runs no gateway",
            hint="Start one with `kici-scaler gateway`, and name it with KICI_URL.",
        )
    return profile.gateway_url
