"""Pulls: progress, and what their failures mean."""

from __future__ import annotations

from typing import Any

import pytest

from workers.container.images import Progress, PullPolicy, Wanted, judged
from workers.credentials import RegistryCredentials, registry_of
from workers.errors import NotDone, Permanent


def _event(status: str, layer: str, current: int = 0, total: int = 0) -> dict[str, Any]:
    return {
        "status": status,
        "id": layer,
        "progressDetail": {"current": current << 20, "total": total << 20} if total else {},
    }


def test_progress_adds_up_layers() -> None:
    progress = Progress()
    assert str(progress) == ""

    progress.note(_event("Pulling fs layer", "a"))
    progress.note(_event("Downloading", "a", 3, 10))
    progress.note(_event("Downloading", "b", 1, 30))
    assert str(progress) == "4 of 40 MiB"

    progress.note(_event("Download complete", "a"))
    progress.note(_event("Download complete", "unknown"))
    progress.note(_event("Downloading", "b", 30, 30))
    assert str(progress) == "40 of 40 MiB"


def _wanted(*, is_of_job: bool) -> Wanted:
    return Wanted("shop/it:1", PullPolicy.IF_NOT_PRESENT, print, is_of_job=is_of_job)


HOPELESS = [
    "pull access denied for shop/it, repository does not exist",
    "manifest for shop/it:1 not found: manifest unknown",
    'Head "https://shop/v2/": unauthorized: incorrect username or password',
    "no basic auth credentials",
    "no matching manifest for linux/arm64",
]


@pytest.mark.parametrize("said", HOPELESS)
def test_an_image_that_will_never_come_ends_the_job_that_wants_it(said: str) -> None:
    of_job = judged(NotDone(said), _wanted(is_of_job=True))
    of_scaler = judged(NotDone(said), _wanted(is_of_job=False))

    assert isinstance(of_job, Permanent)
    assert of_job.job_caused
    assert isinstance(of_scaler, NotDone)
    assert not of_scaler.job_caused


def test_a_registry_in_trouble_may_be_asked_again_and_never_blames_the_scaler() -> None:
    said = NotDone("dial tcp 10.0.0.9:443: i/o timeout")

    assert isinstance(judged(said, _wanted(is_of_job=True)), NotDone)
    assert judged(said, _wanted(is_of_job=True)).job_caused
    assert not judged(said, _wanted(is_of_job=False)).job_caused


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("ubuntu", "docker.io"),
        ("library/ubuntu:24.04", "docker.io"),
        ("docker.io/library/ubuntu", "docker.io"),
        ("ghcr.io/owner/image@sha256:0", "ghcr.io"),
        ("localhost/image", "localhost"),
        ("localhost:5000/image", "localhost:5000"),
        ("10.0.0.9:5000/a/b:1", "10.0.0.9:5000"),
    ],
)
def test_an_image_name_tells_its_registry(image: str, registry: str) -> None:
    assert registry_of(image) == registry


@pytest.mark.parametrize(
    ("registry", "image", "fits"),
    [
        (None, "anything.example.com/it", True),
        ("ghcr.io", "ghcr.io/owner/it", True),
        ("https://ghcr.io/", "ghcr.io/owner/it", True),
        ("https://index.docker.io/v1/", "owner/it", True),
        ("ghcr.io", "quay.io/owner/it", False),
        ("ghcr.io", "owner/it", False),
    ],
)
def test_credentials_are_for_their_registry(registry: str | None, image: str, fits: bool) -> None:
    assert RegistryCredentials("token", registry=registry).is_for(image) is fits


def test_a_token_shows_in_no_text() -> None:
    assert "hush" not in repr(RegistryCredentials("hush"))
