"""Pulling images from a real registry."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.container.harness import IMAGE
from tests.e2e.container.images import AGENT
from tests.e2e.container.registry import PASSWORD, USER, Registry, publish, registry
from tests.e2e.container.workshop import Workshop, soon
from workers.contract import Deadline, LifecycleKind, RegistryCredentials, SpawnOrder
from workers.errors import BackendError, NotDone, Permanent


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Registry]:
    """A registry that is open to everyone."""
    with registry(tmp_path / "registry") as made:
        yield made


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Registry]:
    """A registry with a password."""
    with registry(tmp_path / "registry", locked=True) as made:
        yield made


def _publish(workshop: Workshop, shop: Registry, image: str = IMAGE, *, keep: bool = False) -> str:
    return publish(workshop.engine, shop, image, workshop.installation_id, keep=keep)


def _provisioning(workshop: Workshop) -> list[str]:
    told = (each for each in workshop.told if each.kind is LifecycleKind.PROVISIONING)
    return [each.detail for each in told]


def test_an_image_that_is_missing_is_pulled_and_said_to_be(
    workshop: Workshop, shop: Registry
) -> None:
    image = _publish(workshop, shop)

    workshop.open().spawn(workshop.order(image=image), soon())
    workshop.open().spawn(workshop.order(image=image), soon())

    assert shop.pulls(workshop.installation_id) == 1
    assert _provisioning(workshop)[0] == f"pulling {image}"


def test_spawns_at_once_pull_an_image_once(workshop: Workshop, shop: Registry) -> None:
    image = _publish(workshop, shop)
    orders = [workshop.order(image=image) for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda order: workshop.open().spawn(order, soon()), orders))

    assert shop.pulls(workshop.installation_id) == 1


def test_the_policy_always_asks_the_registry_each_time(workshop: Workshop, shop: Registry) -> None:
    image = _publish(workshop, shop, keep=True)

    for _ in range(2):
        workshop.open().spawn(workshop.order(image=image, imagePullPolicy="Always"), soon())

    assert shop.pulls(workshop.installation_id) == 2


def test_the_policy_never_leaves_the_registry_alone(workshop: Workshop, shop: Registry) -> None:
    image = _publish(workshop, shop)

    with pytest.raises(NotDone, match="pull policy is Never") as refusal:
        workshop.open().spawn(workshop.order(image=image, imagePullPolicy="Never"), soon())

    assert not refusal.value.job_caused
    assert shop.pulls(workshop.installation_id) == 0


def test_a_jobs_public_image_needs_no_credentials(workshop: Workshop, shop: Registry) -> None:
    image = _publish(workshop, shop)

    workshop.open().spawn(_job_order(workshop, image, None), soon())

    assert shop.pulls(workshop.installation_id) == 1


def _job_order(workshop: Workshop, image: str, token: str | None) -> SpawnOrder:
    credentials = token and RegistryCredentials(token, USER)
    return workshop.order(image=AGENT, job_image=image, registry=credentials or None)


def test_a_jobs_private_image_is_pulled_with_its_credentials(
    workshop: Workshop, locked: Registry
) -> None:
    image = _publish(workshop, locked)

    workshop.open().spawn(_job_order(workshop, image, PASSWORD), soon())

    assert locked.pulls(workshop.installation_id) == 1
    assert PASSWORD not in str(workshop.told)


@pytest.mark.parametrize("token", [None, "not the word"])
def test_an_image_that_the_credentials_do_not_open_is_the_jobs_own_fault(
    workshop: Workshop, locked: Registry, token: str | None
) -> None:
    image = _publish(workshop, locked)
    order = _job_order(workshop, image, token)

    with pytest.raises(Permanent) as refusal:
        workshop.open().spawn(order, soon())

    assert refusal.value.job_caused
    assert token is None or token not in f"{refusal.value}{workshop.told}"


def test_credentials_are_shown_to_their_own_registry_only(
    workshop: Workshop, locked: Registry
) -> None:
    image = _publish(workshop, locked)
    elsewhere = RegistryCredentials(PASSWORD, USER, registry="registry.example.com")
    order = workshop.order(image=AGENT, job_image=image, registry=elsewhere)

    with pytest.raises(Permanent) as refusal:
        workshop.open().spawn(order, soon())

    assert refusal.value.job_caused


def test_a_registry_that_hangs_ends_the_call_by_its_deadline(workshop: Workshop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        order = workshop.order(image=AGENT, job_image=f"127.0.0.1:{port}/never:1")
        began = time.monotonic()
        with pytest.raises(BackendError) as refusal:
            workshop.open().spawn(order, Deadline.after(15))

    assert time.monotonic() - began < 17
    assert isinstance(refusal.value, NotDone)
    assert refusal.value.job_caused
