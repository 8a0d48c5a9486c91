"""In which order tests run: what takes long begins first; nobody waits for it at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

LONGEST_FIRST: Final = ("faults", "e2e", "integration", "conformance")
"""Folders of tests, those first whose tests start whole installations."""
_HERE: Final = Path(__file__).parents[1]


def place_of(path: Path) -> int:
    """Where the tests of a file come; those of no listed folder last."""
    folder = path.relative_to(_HERE).parts[0] if path.is_relative_to(_HERE) else ""
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only where several processes share the tests; alone, the quickest answer comes first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(item.path))
