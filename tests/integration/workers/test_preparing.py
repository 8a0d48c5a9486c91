"""A worker gets ready for each configuration, and says which scalers its machine cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kici_scaler.domain.scalers import BackendType, Scaler
from kici_scaler.domain.spawn import SpawnState
from kici_scaler.service import reload
from kici_scaler.service.runtime import Runtime
from tests.integration.reload.yard import document, scaler
from tests.support.rows import Rows
from workers.contract import Deadline, Finding, Severity
from workers.errors import NotDone
from workers.host.preparing import LONGEST_REASON, RETRY_SECONDS, Preparer, sentence
from workers.null.backend import NullBackend
from workers.null.ledger import Ledger


class Fussy(NullBackend):
    """A backend that prepares and checks nothing it dislikes, and remembers what it was asked."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.unprepared: set[str] = set()
        self.disliked: set[str] = set()
        self.severity = Severity.ERROR
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.is_away = False

    def prepare(self, scalers: Sequence[Scaler], deadline: Deadline) -> None:
        names = tuple(each.name for each in scalers)
        self.asked.append(("prepare", names))
        bad = self.unprepared & set(names)
        if self.is_away or bad:
            raise NotDone(f"no runtime for {sorted(bad)}", hint="start it")

    def check(self, scalers: Sequence[Scaler], deadline: Deadline) -> tuple[Finding, ...]:
        names = tuple(each.name for each in scalers)
        self.asked.append(("check", names))
        return tuple(
            Finding(self.severity, name, "has no program", "install it")
            if name in self.disliked
            else Finding(Severity.OK, name, "is fine")
            for name in names
        )


@dataclass
class Bench:
    """A preparer, its backend, and the configuration in force."""

    runtime: Runtime
    backend: Fussy
    preparer: Preparer
    clock: list[float]

    def reload(self, *names: str, **more: Any) -> None:
        """Let these bare-metal scalers take over, beside a container one."""
        scalers = [scaler(name, **more) for name in names]
        wanted = document(*scalers, scaler("boxes", type="container"))
        candidate = reload.of_document(self.runtime.engine, wanted, "test")
        reload.apply(self.runtime, candidate, author="test")

    def look(self) -> dict[str, str]:
        """One look; what it found."""
        self.backend.asked.clear()
        self.preparer.look()
        return dict(self.preparer.degraded)


@pytest.fixture
def bench(rows: Rows, tmp_path: Path) -> Bench:
    backend, clock = Fussy(Ledger(tmp_path / "ledger.sqlite")), [0.0]
    runtime = Runtime(rows.engine, "worker")
    preparer = Preparer(runtime, backend, BackendType.BARE_METAL, now=lambda: clock[0])
    found = Bench(runtime, backend, preparer, clock)
    found.reload("a", "b")
    return found


def test_the_first_look_is_at_every_scaler_of_its_type(bench: Bench) -> None:
    bench.preparer.begin()
    assert bench.backend.asked == [("prepare", ("a", "b")), ("check", ("a", "b"))]
    assert bench.preparer.degraded == {}


def test_an_unchanged_configuration_costs_nothing(bench: Bench) -> None:
    bench.preparer.begin()
    assert bench.look() == {}
    assert bench.backend.asked == []


def test_another_revision_with_the_same_scalers_costs_nothing(bench: Bench, rows: Rows) -> None:
    bench.preparer.begin()
    rows.execute("UPDATE config_revisions SET active = false")
    rows.execute(
        "INSERT INTO config_revisions (digest, document, source, author, active)"
        " SELECT 'again', document, 'test', 'test', true FROM config_revisions"
    )
    bench.look()
    assert bench.backend.asked == []


def test_a_new_scaler_is_prepared_once(bench: Bench) -> None:
    bench.preparer.begin()
    bench.reload("a", "b", "c")
    assert bench.look() == {}
    assert bench.backend.asked == [("prepare", ("a", "b", "c")), ("check", ("a", "b", "c"))]
    bench.look()
    assert bench.backend.asked == []


def test_what_fails_is_named_alone_and_the_others_are_prepared_together(bench: Bench) -> None:
    bench.preparer.begin()
    bench.backend.unprepared, bench.backend.disliked = {"c"}, {"d"}
    bench.reload("a", "b", "c", "d")
    assert bench.look() == {
        "c": "no runtime for ['c']; start it",
        "d": "d: has no program; install it",
    }
    everyone = ("prepare", ("a", "b", "c", "d"))
    assert bench.backend.asked.count(everyone) == 2
    assert [each for each in bench.backend.asked if each[0] == "prepare"][-1] == everyone


def test_what_failed_is_tried_again_after_a_pause_and_mends(bench: Bench) -> None:
    bench.backend.disliked = {"b"}
    bench.preparer.begin()
    assert set(bench.look()) == {"b"}
    assert bench.backend.asked == []
    bench.backend.disliked = set()
    bench.clock[0] += RETRY_SECONDS
    assert bench.look() == {}
    bench.clock[0] += RETRY_SECONDS
    bench.look()
    assert bench.backend.asked == []


def test_a_worker_that_can_prepare_nothing_is_of_no_use(bench: Bench) -> None:
    bench.backend.is_away = True
    with pytest.raises(NotDone, match="no runtime"):
        bench.preparer.begin()


def test_a_worker_that_loses_its_runtime_later_stays_and_says_so(bench: Bench) -> None:
    bench.preparer.begin()
    bench.backend.is_away = True
    bench.reload("a", "b", "c")
    assert set(bench.look()) == {"a", "b", "c"}


def test_a_worker_of_some_scalers_looks_at_those(bench: Bench) -> None:
    bench.preparer.serves = ("b",)
    bench.preparer.begin()
    assert bench.backend.asked[0] == ("prepare", ("b",))


def test_what_a_retiring_scaler_needs_is_kept_up(bench: Bench, rows: Rows) -> None:
    revision = rows.one("SELECT id FROM config_revisions WHERE active")
    rows.spawn(SpawnState.BUSY, job=rows.request(state="running"), scaler="b",
               revision_id=revision)  # fmt: skip
    bench.preparer.begin()
    bench.backend.disliked = {"b"}
    bench.reload("a")
    assert bench.look() == {}
    assert bench.backend.asked == [("prepare", ("a", "b")), ("check", ("a",))]


def test_a_reason_fits_a_status_page() -> None:
    assert sentence(NotDone("two\n  lines", hint="so what")) == "two lines; so what"
    long = sentence(NotDone("x" * 2 * LONGEST_REASON))
    assert len(long) == LONGEST_REASON


def test_a_warning_is_given_once_and_keeps_nothing_from_starting(bench: Bench) -> None:
    bench.backend.disliked, bench.backend.severity = {"b"}, Severity.WARNING
    with capture_logs() as logs:
        bench.preparer.begin()
        bench.reload("a", "b", "c")
        assert bench.look() == {}
    assert [each["subject"] for each in logs if each["log_level"] == "warning"] == ["b"]
