"""Agents in containers of the machine's own runtime: label sets with an `image` and no program."""

from __future__ import annotations

from collections.abc import Mapping

from kici_scaler.domain.scalers import LabelSet, Scaler
from workers.contract import SpawnOrder
from workers.credentials import DEFAULT_REGISTRY, registry_of
from workers.errors import Permanent

_DOCKER_HUB = (DEFAULT_REGISTRY, "https://index.docker.io/v1/")
"""Under which names clients look for its credentials."""


def is_boxed(label_set: LabelSet) -> bool:
    """Whether its agents run in containers."""
    return not label_set.text("binaryPath") and bool(label_set.text("image"))


def is_open(options: Mapping[str, object]) -> bool:
    """Whether the scaler says that its containers need no isolation, which nobody makes here."""
    return options.get("networkIsolation") is False


def box_of(order: SpawnOrder, agent_file: str) -> dict[str, object]:
    """What the supervisor is told of the container.

    Raises:
        Permanent: the scaler asks for isolation.
    """
    if not is_open(order.options):
        raise Permanent(
            f"scaler `{order.scaler}` wants its containers isolated, which a bare-metal scaler "
            "cannot do",
            hint="set `networkIsolation: false`, or use a scaler of `type: container`",
        )
    label_set, own = order.label_set, order.label_set.text("image")
    image = order.job_image or own or ""
    volumes = label_set.options.get("volumes")
    return {
        "image": image,
        "agent": agent_file,
        "pull": label_set.text("imagePullPolicy"),
        "is_jobs": order.job_image is not None,
        "runtime": order.options.get("runtime"),
        "volumes": list(volumes) if isinstance(volumes, list | tuple) else [],
        "registry": _registry(order, image),
    }


def _registry(order: SpawnOrder, image: str) -> dict[str, object] | None:
    given = order.registry
    if given is None or not given.is_for(image):
        return None
    host = registry_of(image)
    servers = _DOCKER_HUB if host == DEFAULT_REGISTRY else (host,)
    return {"username": given.username, "password": given.token, "servers": list(servers)}


def any_boxed(scaler: Scaler) -> bool:
    """Whether any of its label sets runs agents in containers."""
    return any(map(is_boxed, scaler.label_sets))
