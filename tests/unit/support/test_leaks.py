"""The search for secrets finds them, and looks everywhere but where they belong."""

from __future__ import annotations

from pathlib import Path

from tests.faults.leaks import in_files


def test_a_secret_is_found_in_any_file_but_those_that_are_made_for_it(tmp_path: Path) -> None:
    for name in ("secrets/key", "logs/a.log", "machine/agents/x/record.json", "logs/fine.log"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("nothing" if "fine" in name else "before hunter2-hunter2 after")
    assert in_files(tmp_path, {"the key": "hunter2-hunter2"}) == [
        "the key stands in logs/a.log",
        "the key stands in machine/agents/x/record.json",
    ]
