"""Finding backends by entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from workers import registry
from workers.bare_metal import BareMetalBackend
from workers.contract import BackendContext
from workers.errors import UnknownBackend
from workers.machine import local_machine
from workers.null import NullBackend


@pytest.fixture
def context(tmp_path: Path) -> BackendContext:
    return BackendContext("test", local_machine("here"), tmp_path)


def _installing(*entries: EntryPoint) -> Callable[..., tuple[EntryPoint, ...]]:
    return lambda group: entries


def test_the_installed_backends_are_found(context: BackendContext) -> None:
    assert isinstance(registry.open_backend("bare-metal", context), BareMetalBackend)
    assert isinstance(registry.open_backend("null", context), NullBackend)


def test_another_type_can_stand_in(context: BackendContext) -> None:
    opened = registry.open_backend("bare-metal", context, {"bare-metal": "null"})

    assert isinstance(opened, NullBackend)


def test_an_unknown_type_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnknownBackend, match=r"`kubernetes`.*bare-metal, .*null") as refusal:
        registry.factory("kubernetes")

    assert "kici_scaler.backends" in refusal.value.hint


def test_a_backend_that_cannot_be_imported_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = EntryPoint("broken", "no_such_package:open_backend", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", _installing(broken))

    with pytest.raises(UnknownBackend, match=r"`broken` \(no_such_package:open_backend\)"):
        registry.factory("broken")


def test_a_third_partys_backend_is_found_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = EntryPoint("theirs", "workers.null:open_backend", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", _installing(theirs))

    assert list(registry.installed()) == ["theirs"]
    assert registry.factory("theirs").__name__ == "open_backend"
