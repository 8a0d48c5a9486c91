"""Imports run one way; the picture is in docs/architecture.md, the rules in pyproject.toml."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source import PACKAGES, ROOT, Module, modules_of

IMPORTS_ONLY = {
    "kici_scaler/domain": {"kici_scaler.domain"},
    "kici_scaler/agent": {"kici_scaler.agent", "websockets"},
    "kici_scaler/client": {
        "kici_scaler.client",
        "kici_scaler.errors",
        "kici_scaler.sealing",
        "celery",
        "httpx",
        "nacl",
    },
    "kici_scaler/errors": set[str](),
}
"""What a part may import besides the standard library: decisions stay pure, and the agent and
the client stay light enough to be installed where the scaler is not."""

LAZILY = {"kici_scaler/client": "celery"}
"""What a part may import inside a function only, so that it works without."""


def _imports(module: Module, *, anywhere: bool = True) -> list[tuple[int, str]]:
    """Each imported name with its line; with `anywhere` off, only those at the top level."""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    nodes = ast.walk(module.tree) if anywhere else iter(module.tree.body)
    found: list[tuple[int, str]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def _is_within(name: str, allowed: set[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in allowed)


def _part(name: str) -> list[Module]:
    path = ROOT / name
    return modules_of(name) if path.is_dir() else [Module(path.with_suffix(".py"))]


def test_imports_run_one_way() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    checked = subprocess.run(
        [program, "--no-cache", "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("part", IMPORTS_ONLY)
def test_the_light_parts_import_only_what_they_may(part: str) -> None:
    allowed = IMPORTS_ONLY[part] | set(sys.stdlib_module_names)
    wrong = [
        f"{module.place}:{line} imports {name}"
        for module in _part(part)
        for line, name in _imports(module)
        if not _is_within(name, allowed)
    ]
    assert not wrong, "\n".join([f"{part} may import only {sorted(IMPORTS_ONLY[part])}:", *wrong])


@pytest.mark.parametrize("part", LAZILY)
def test_the_optional_import_waits_until_it_is_needed(part: str) -> None:
    wrong = [
        f"{module.place}:{line}"
        for module in _part(part)
        for line, name in _imports(module, anywhere=False)
        if _is_within(name, {LAZILY[part]})
    ]
    assert not wrong, f"import {LAZILY[part]} inside the function that needs it: {wrong}"


def test_every_folder_of_a_package_is_a_package() -> None:
    folders = {module.path.parent for module in modules_of(*PACKAGES)}
    missing = sorted(
        folder.relative_to(ROOT).as_posix()
        for folder in folders
        if not (folder / "__init__.py").exists()
    )
    assert not missing, f"without an __init__.py the import rules do not see: {missing}"
