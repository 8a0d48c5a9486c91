"""Images that are pulled when a machine gets ready, for scalers that ask for that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kici_scaler.domain.scalers import LabelSet, Scaler
from tests.conformance.harness import Harness, soon
from tests.integration.workers.container.conftest import PretendedHarness
from tests.integration.workers.container.pretended_engine import PretendedEngine
from workers.container import ahead
from workers.container.backend import ContainerBackend
from workers.errors import NotDone


def _scaler(harness: Harness, *images: str, asks: bool = True, policy: str = "") -> Scaler:
    options = {"imagePullPolicy": policy} if policy else {}
    sets = tuple(
        LabelSet(number, (f"l{number}",), options={"image": image, **options})
        for number, image in enumerate(images)
    )
    found = harness.scaler()
    isolation = {"networkIsolation": False}
    return replace(
        found, label_sets=sets, options={**found.options, **isolation, ahead.OPTION: asks}
    )


@pytest.fixture
def opened(harness: Harness) -> ContainerBackend:
    """The backend, whose own calls are looked at."""
    backend = harness.open()
    assert isinstance(backend, ContainerBackend)
    return backend


@pytest.fixture
def asked(harness: Harness) -> PretendedEngine:
    """What the machine's runtime was asked."""
    assert isinstance(harness, PretendedHarness)
    return harness.engine


def test_images_are_pulled_once_when_the_machine_gets_ready(
    harness: Harness, opened: ContainerBackend, asked: PretendedEngine
) -> None:
    scaler = _scaler(harness, "shop/a:1", "shop/b:2", "shop/a:1")
    for _ in range(2):
        opened.prepare([scaler], soon())
    assert asked.told()["pulls"] == ["shop/a:1", "shop/b:2"]


def test_nobody_else_has_anything_pulled(
    harness: Harness, opened: ContainerBackend, asked: PretendedEngine
) -> None:
    opened.prepare([_scaler(harness, "shop/a:1", asks=False)], soon())
    assert asked.told()["pulls"] == []


def test_what_is_always_pulled_is_pulled_each_time(
    harness: Harness, opened: ContainerBackend, asked: PretendedEngine
) -> None:
    for _ in range(2):
        opened.prepare([_scaler(harness, "shop/a:1", policy="Always")], soon())
    assert asked.told()["pulls"] == ["shop/a:1"] * 2


def test_an_image_that_cannot_be_had_is_told_and_the_others_are_there(
    harness: Harness, opened: ContainerBackend, asked: PretendedEngine
) -> None:
    with pytest.raises(NotDone, match="manifest unknown"):
        opened.prepare([_scaler(harness, "shop/missing:1", "shop/b:2")], soon())
    assert asked.told()["pulls"] == ["shop/missing:1", "shop/b:2"]


def test_an_image_that_takes_too_long_is_left_to_who_needs_it(
    harness: Harness,
    opened: ContainerBackend,
    asked: PretendedEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "SHARE_OF_THE_TIME", 0.0)
    opened.prepare([_scaler(harness, "shop/a:1")], soon())
    assert asked.told()["pulls"] == []
