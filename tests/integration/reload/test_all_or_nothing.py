"""A reload happens whole or not at all, whatever it is, whoever else reloads, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from kici_scaler import checkpoints
from kici_scaler.errors import KiciError, NotFound
from kici_scaler.scalers_file import InvalidScalerFile, UnreadableScalerFile
from kici_scaler.service import reload
from kici_scaler.service.reload import Candidate, ReloadOvertaken, ReloadRejected
from kici_scaler.service.runtime import Runtime
from kici_scaler.store import revisions
from kici_scaler.store.engine import CommitUnknown, DatabaseUnreachable, make_engine
from tests.integration.reload.yard import Document, Yard, document, scaler
from tests.support.source import ROOT
from tests.support.tcp_proxy import CutReply, CutRequest, TcpProxy, Treatment

OLD = document(scaler("old", "linux"), scaler("kept"))
NEW = document(scaler("new", "linux"), scaler("kept", maxAgents=7))

COMMIT = b"COMMIT\0"
"""The statement on the wire, and no isolation level that begins like it."""
INVALID: dict[str, Document] = {
    "nothing": {},
    "an unknown key": document(scaler("a", wat=1)),
    "two of one name": document(scaler("a", "x"), scaler("a", "y")),
    "label sets that overlap": document(scaler("a", "x"), globalMaxAgents=-1),
    "no program": document({**scaler("a"), "labelSets": [{"labels": ["a"]}]}),
    "a pool that there is not": document(scaler("a", machinePool="nowhere")),
    "the wrong shape": {"version": 1, "scalers": {"a": 1}},
}


@pytest.fixture
def busy_yard(yard: Yard) -> Yard:
    """A yard under `OLD` with jobs that wait, are reserved, and run."""
    yard.take_over(OLD)
    yard.ask("linux")
    (agent,) = yard.start()
    yard.connect(agent)
    assert yard.accept(agent)
    yard.ask("linux")
    yard.ask("nobody", "serves", "this")
    return yard


@pytest.mark.parametrize("wanted", INVALID.values(), ids=INVALID)
def test_an_invalid_configuration_changes_nothing(busy_yard: Yard, wanted: Document) -> None:
    before = busy_yard.dump()
    with pytest.raises(InvalidScalerFile) as caught:
        busy_yard.take_over(wanted)
    assert caught.value.problems
    assert busy_yard.dump() == before


def test_a_file_that_cannot_be_read_changes_nothing(busy_yard: Yard, tmp_path: Path) -> None:
    before = busy_yard.dump()
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(UnreadableScalerFile):
            reload.read(busy_yard.runtime.engine, path)
    assert busy_yard.dump() == before


def test_a_rejected_one_changes_nothing(busy_yard: Yard) -> None:
    before = busy_yard.dump()
    with pytest.raises(ReloadRejected):
        busy_yard.reload(scaler("old", "linux", type="container"), scaler("kept"))
    assert busy_yard.dump() == before


def test_a_plan_writes_nothing_and_says_what_would_drain(busy_yard: Yard) -> None:
    before = busy_yard.dump()
    engine = busy_yard.runtime.engine
    planned = reload.plan(engine, reload.of_document(engine, NEW, "test"))
    assert (planned.applied, planned.revision_id) == (False, revisions_of(busy_yard)[0])
    assert planned.drained == {"old": {"busy": 1, "reserved": 1}}
    assert planned.plan.summary == "+new, ~kept (maxAgents), -old"
    assert busy_yard.dump() == before


def test_the_configuration_in_force_is_taken_for_what_it_is(busy_yard: Yard) -> None:
    before = busy_yard.dump()
    done = busy_yard.take_over(OLD)
    assert (done.applied, done.plan.changes_nothing) == (False, True)
    assert busy_yard.dump() == before


def test_of_two_reloads_at_once_one_wins_and_the_other_says_so(busy_yard: Yard) -> None:
    engine = busy_yard.runtime.engine
    others = [document(scaler(f"s{number}", "linux"), scaler("kept")) for number in range(6)]
    candidates = [reload.of_document(engine, each, f"from {n}") for n, each in enumerate(others)]
    together = threading.Barrier(len(candidates))

    def take_over(candidate: Candidate) -> int | KiciError:
        together.wait(60)
        try:
            return reload.apply(busy_yard.runtime, candidate, author="test").revision_id
        except ReloadOvertaken as error:
            return error

    with ThreadPoolExecutor(len(candidates)) as pool:
        outcomes = list(pool.map(take_over, candidates))
    (won,) = (each for each in outcomes if isinstance(each, int))
    lost = [each for each in outcomes if isinstance(each, ReloadOvertaken)]
    assert len(lost) == len(candidates) - 1
    assert all(f"revision {won} took over" in str(each) and each.hint for each in lost)
    assert revisions_of(busy_yard)[0] == won
    assert len(revisions_of(busy_yard)) == 2


def test_the_same_configuration_from_two_sides_is_one_reload(busy_yard: Yard) -> None:
    """As when every gateway is sent the signal."""
    engine = busy_yard.runtime.engine
    first, second = (reload.of_document(engine, NEW, source) for source in ("a", "b"))
    assert reload.apply(busy_yard.runtime, first, author="test").applied
    assert not reload.apply(busy_yard.runtime, second, author="test").applied
    assert len(revisions_of(busy_yard)) == 2


def revisions_of(yard: Yard) -> list[int]:
    """Every revision, newest first."""
    return [row.id for row in yard.rows.call(revisions.history)]


def _child(yard: Yard, folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Another process that lets `NEW` take over; it may be told to die on the way."""
    file = folder / "scalers.yaml"
    file.write_text(yaml.safe_dump(NEW))
    url = yard.runtime.engine.url.render_as_string(hide_password=False)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.reload.child", file.name],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "DATABASE": url, **environment},
        cwd=folder,
    )


def test_of_two_processes_one_wins_and_the_other_says_so(busy_yard: Yard, tmp_path: Path) -> None:
    """Both have read and planned when the first of them goes on."""
    (tmp_path / "reload.prepared").write_text("stop")
    frozen = _child(busy_yard, tmp_path, {checkpoints.VARIABLE: str(tmp_path)})
    try:
        os.waitid(os.P_PID, frozen.pid, os.WSTOPPED | os.WNOWAIT)
        candidate = reload.of_document(
            busy_yard.runtime.engine, document(scaler("third", "linux")), "test"
        )
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(reload.apply, busy_yard.runtime, candidate, author="test")
            busy_yard.rows.wait_until_blocked()
            frozen.send_signal(signal.SIGCONT)
            with pytest.raises(ReloadOvertaken, match="took over"):
                other.result(60)
        assert frozen.wait(60) == 0
    finally:
        frozen.kill()
        frozen.wait()
    assert _active_names(busy_yard) == ["new", "kept"]
    assert not busy_yard.unaccounted()


@pytest.mark.parametrize(
    ("step", "applied"), [("reload.prepared", False), ("reload.committed", True)]
)
def test_a_process_killed_half_way_has_done_all_of_it_or_nothing(
    busy_yard: Yard, tmp_path: Path, step: str, applied: bool
) -> None:
    before = busy_yard.dump()
    (tmp_path / step).write_text("kill")
    child = _child(busy_yard, tmp_path, {checkpoints.VARIABLE: str(tmp_path)})
    assert child.wait(60) == -signal.SIGKILL
    if not applied:
        assert busy_yard.dump() == before
    assert _active_names(busy_yard) == (["new", "kept"] if applied else ["old", "kept"])
    assert not busy_yard.unaccounted()
    # Whoever reloads again finds either state a good one to start from.
    assert busy_yard.take_over(NEW).applied is not applied
    busy_yard.run_everything()


@pytest.fixture
def far(engine: Engine) -> Iterator[tuple[Runtime, TcpProxy]]:
    """A runtime whose way to the database can be broken."""
    url = make_url(engine.url.render_as_string(hide_password=False))
    assert url.host is not None
    assert url.port is not None
    with TcpProxy((url.host, url.port)) as proxy:
        through = url.set(host=proxy.host, port=proxy.port).render_as_string(hide_password=False)
        made = make_engine(through, application="far", pool_size=2)
        yield Runtime(made, "far"), proxy
        made.dispose()


@pytest.mark.parametrize(
    ("treatment", "applied"),
    [
        pytest.param(CutRequest(b"INSERT INTO config_revisions"), False, id="before the change"),
        pytest.param(CutRequest(b"INSERT INTO audit"), False, id="before the last row"),
        pytest.param(CutRequest(COMMIT), False, id="before the commit"),
        pytest.param(CutReply(COMMIT), True, id="after the commit"),
    ],
)
def test_a_connection_that_breaks_half_way_leaves_all_of_it_or_nothing(
    busy_yard: Yard, far: tuple[Runtime, TcpProxy], treatment: Treatment, applied: bool
) -> None:
    runtime, proxy = far
    candidate = reload.of_document(runtime.engine, NEW, "test")
    before = busy_yard.dump()
    with proxy.treating(requests=treatment), pytest.raises(DatabaseUnreachable) as caught:
        reload.apply(runtime, candidate, author="test")
    assert isinstance(caught.value, CommitUnknown) is (_pattern(treatment) == COMMIT)
    if not applied:
        assert busy_yard.dump() == before
    assert _active_names(busy_yard) == (["new", "kept"] if applied else ["old", "kept"])
    # Asked once more, as every caller does who is not answered.
    busy_yard.take_over(NEW)
    assert _active_names(busy_yard) == ["new", "kept"]
    assert not busy_yard.unaccounted()


def test_an_earlier_configuration_takes_over_again_as_a_new_revision(busy_yard: Yard) -> None:
    (first,) = revisions_of(busy_yard)
    busy_yard.take_over(NEW)
    done = reload.roll_back(busy_yard.runtime, first, author="me")
    assert done.applied
    newest, _, oldest = busy_yard.rows.call(revisions.history)
    assert (newest.id, newest.author, newest.active) == (done.revision_id, "me", True)
    assert newest.source == f"rollback to revision {first}"
    assert newest.digest == oldest.digest
    assert newest.summary == "+old (back), ~kept (maxAgents), -new"
    assert _active_names(busy_yard) == ["old", "kept"]


def test_a_revision_that_there_is_not_cannot_come_back(busy_yard: Yard) -> None:
    before = busy_yard.dump()
    with pytest.raises(NotFound, match="4711"):
        reload.roll_back(busy_yard.runtime, 4711, author="me")
    assert busy_yard.dump() == before


def test_history_tells_what_each_revision_changed_and_shows_it_whole(busy_yard: Yard) -> None:
    busy_yard.take_over(NEW)
    second, first = busy_yard.rows.call(revisions.history)
    assert first.summary == "+old, +kept"
    assert second.summary == "+new, ~kept (maxAgents), -old"
    shown, plan = reload.shown(busy_yard.runtime.engine, second.id)
    assert plan.summary == second.summary
    names = [each["name"] for each in _scalers(shown)]
    assert names == ["new", "kept"]


def _active_names(yard: Yard) -> list[str]:
    stored = yard.rows.one("SELECT document FROM config_revisions WHERE active")
    return [each["name"] for each in _scalers(stored)]


def _scalers(stored: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stored["scalers"]
    return found


def _pattern(treatment: Treatment) -> bytes:
    assert isinstance(treatment, CutReply | CutRequest)
    return treatment.pattern
