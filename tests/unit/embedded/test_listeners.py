"""Output goes to bounded files and to whoever listens."""

from __future__ import annotations

from pathlib import Path

from kici_scaler.embedded import listeners
from kici_scaler.embedded.listeners import LogFiles, Several
from tests.support.children import Heard


def test_each_child_has_a_file_and_events_have_one(tmp_path: Path) -> None:
    files = LogFiles(tmp_path)
    files.line("beat", "100 % done")
    files.event("beat", "ready")
    files.close()
    files.line("beat", "too late")
    assert (tmp_path / "beat.log").read_text() == "100 % done\n"
    assert (tmp_path / "supervisor.log").read_text().endswith(" beat: ready\n")


def test_a_file_never_grows_without_bound(tmp_path: Path) -> None:
    files = LogFiles(tmp_path)
    line = "x" * 100_000
    for _ in range(3 * listeners.LARGEST_LOG // len(line)):
        files.line("beat", line)
    files.close()
    sizes = [each.stat().st_size for each in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= listeners.LARGEST_LOG


def test_a_listener_joins_for_a_while() -> None:
    always, sometimes = Heard(), Heard()
    both = Several([always])
    with both.joined_by(sometimes):
        both.line("a", "1")
    both.event("a", "2")
    assert (always.lines, always.events) == ([("a", "1")], [("a", "2")])
    assert (sometimes.lines, sometimes.events) == ([("a", "1")], [])
