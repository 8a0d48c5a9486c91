"""What a job's private image is pulled with."""

from __future__ import annotations

from dataclasses import dataclass, field

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


def _plain(registry: str) -> str:
    """A registry's host as image names have it; Docker Hub has several."""
    host = registry.removeprefix("https://").removeprefix("http://").partition("/")[0].lower()
    return DEFAULT_REGISTRY if host in ("docker.io", "index.docker.io", "") else host
