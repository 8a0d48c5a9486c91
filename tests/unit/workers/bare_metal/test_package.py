"""The supervisor as one file."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source import Module, modules_of
from workers.bare_metal.package import packed

SUPERVISOR = modules_of("workers/bare_metal/supervisor")


def test_equal_sources_give_equal_bytes() -> None:
    first = packed()
    packed.cache_clear()

    assert packed() == first
    assert first.digest[:16] in first.file_name
    assert len(first.content) < 64 << 10


def test_it_is_installed_once_and_mended_when_spoilt(tmp_path: Path) -> None:
    path = packed().install(tmp_path / "deep/down")
    written = path.stat().st_mtime_ns

    assert packed().install(tmp_path / "deep/down").stat().st_mtime_ns == written
    path.write_bytes(b"spoilt")
    packed().install(tmp_path / "deep/down")
    assert path.read_bytes() == packed().content
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_it_runs_with_nothing_but_python(tmp_path: Path) -> None:
    path = packed().install(tmp_path)
    asked = {"deadline_seconds": 10, "executables": ["/bin/sh", "/nowhere"]}

    done = subprocess.run(
        [sys.executable, "-I", "-S", str(path), "--root", str(tmp_path / "root"), "check"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env={},
        check=True,
    )

    answer = json.loads(done.stdout)
    assert answer["ok"]
    assert answer["executables"] == {"/bin/sh": None, "/nowhere": "does not exist"}


@pytest.mark.parametrize("module", SUPERVISOR, ids=lambda module: module.name)
def test_it_asks_for_no_newer_python_and_no_package(module: Module) -> None:
    tree = ast.parse(module.text, feature_version=(3, 8))
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        str(node.module).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 0
    }

    assert imported <= set(sys.stdlib_module_names)
