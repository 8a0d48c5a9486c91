"""What a job's private image is pulled with, as the job's sender sealed it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from workers.errors import Permanent

DEFAULT_USERNAME = "x-access-token"
"""What registries expect beside an access token; the reference's default."""

DEFAULT_REGISTRY = "docker.io"
"""Where an image comes from whose name tells no registry."""


@dataclass(frozen=True, slots=True)
class RegistryCredentials:
    """A user and a token, for one registry; None is the registry of the image."""

    token: str = field(repr=False)
    username: str = DEFAULT_USERNAME
    registry: str | None = None

    def is_for(self, image: str) -> bool:
        """Whether they may be shown to the registry the image comes from."""
        return self.registry is None or _plain(self.registry) == registry_of(image)


def registry_of(image: str) -> str:
    """The registry in an image's name.

    Its first part, where that holds a dot or a colon or is `localhost`; Docker Hub otherwise.
    """
    first, slash, _ = image.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return _plain(first) if is_host else DEFAULT_REGISTRY


def parse_credentials(content: bytes) -> RegistryCredentials:
    """The credentials in an opened envelope: `{token, username?, registry?}` as JSON.

    Raises:
        Permanent: it is something else; never says what.
    """
    try:
        said = json.loads(content)
        token, username, registry = (said.get(key) for key in ("token", "username", "registry"))
    except (ValueError, AttributeError) as error:
        raise _unusable("they are not a JSON object") from error
    if not isinstance(token, str) or not token:
        raise _unusable("they hold no token")
    if not isinstance(username, str | None) or not isinstance(registry, str | None):
        raise _unusable("user name and registry are text where given")
    return RegistryCredentials(token, username or DEFAULT_USERNAME, registry or None)


def _unusable(why: str) -> Permanent:
    return Permanent(
        f"the job's registry credentials cannot be used: {why}",
        hint='seal {"token": "...", "username": "...", "registry": "..."}; only token is required',
        job_caused=True,
    )


def _plain(registry: str) -> str:
    """A registry's host as image names have it; Docker Hub has several."""
    host = registry.removeprefix("https://").removeprefix("http://").partition("/")[0].lower()
    return DEFAULT_REGISTRY if host in ("docker.io", "index.docker.io", "") else host
