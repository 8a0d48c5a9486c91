"""Applying a result again, as long as its lease lasts."""

from __future__ import annotations

import pytest

from kici_scaler.errors import KiciError
from kici_scaler.store.engine import CommitUnknown, Contended, DatabaseUnreachable
from workers.host import persist as module
from workers.host.persist import persist


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.001)


class Store:
    """Fails in these ways, one after the other, then takes it."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = list(troubles)
        self.calls = 0

    def apply(self) -> str:
        self.calls += 1
        if self.troubles:
            raise self.troubles.pop(0)
        return "taken"


def test_what_passes_by_itself_is_waited_for() -> None:
    store = Store(DatabaseUnreachable("away"), Contended(), CommitUnknown("no answer"))
    assert persist(store.apply, for_seconds=10) == "taken"
    assert store.calls == 4


@pytest.mark.parametrize("trouble", [DatabaseUnreachable("away"), Contended()])
def test_it_ends_with_its_lease(trouble: Exception) -> None:
    store = Store(*[trouble] * 1000)
    with pytest.raises(type(trouble)):
        persist(store.apply, for_seconds=0.01)


def test_what_does_not_pass_is_not_repeated() -> None:
    store = Store(KiciError("no"))
    with pytest.raises(KiciError):
        persist(store.apply, for_seconds=10)
    assert store.calls == 1
