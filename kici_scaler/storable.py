"""What the database can hold of what others said: compute, agents and files say anything."""

from __future__ import annotations

from math import isfinite


def storable(text: str) -> str:
    """The text with what no row can hold, NUL and lone surrogates, replaced."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def storable_json(value: object) -> object:
    """The same for all texts in parsed JSON; numbers that JSON does not have become null."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, list):
        return [storable_json(each) for each in value]
    if isinstance(value, dict):
        return {storable(str(key)): storable_json(each) for key, each in value.items()}
    return value
