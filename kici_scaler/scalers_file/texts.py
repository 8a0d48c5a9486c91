"""Text that no database and no JSON holds, wherever it stands in a document."""

from __future__ import annotations

from collections.abc import Iterator

from kici_scaler.scalers_file.explain_errors import Finding
from kici_scaler.scalers_file.problems import Path

_HINT = "Write it without."


def unstorable(document: object) -> Iterator[Finding]:
    """Every key or value with a zero byte or half a character.

    A key is told by the place it stands in: its own name cannot be written either.
    """
    left: list[tuple[Path, object]] = [((), document)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            for key, each in value.items():
                fault = _fault(key)
                if fault:
                    yield Finding(path, f"a key here holds {fault}", hint=_HINT)
                else:
                    left.append(((*path, key), each))
        elif isinstance(value, list):
            left += [((*path, index), each) for index, each in enumerate(value)]
        elif fault := _fault(value):
            yield Finding(path, f"holds {fault}", hint=_HINT)


def _fault(text: object) -> str:
    if not isinstance(text, str):
        return ""
    if "\0" in text:
        return "a zero byte"
    # Only such a half takes part in no encoding of text.
    return "half a character" if any("\ud800" <= each <= "\udfff" for each in text) else ""
