"""Pydantic's findings in an operator's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic_core import ErrorDetails

from kici_scaler.scalers_file.amounts import FLAT, NESTED
from kici_scaler.scalers_file.fields import RULE
from kici_scaler.scalers_file.problems import Path, shown
from kici_scaler.scalers_file.suggest import did_you_mean, key_hint

_OLD_TYPES = {"docker": "It is called `container` now.", "kubernetes": "It is not a backend here."}
_KINDS = {
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "string_type": "expected text",
    "bool_type": "expected true or false",
    "list_type": "expected a list",
    "dict_type": "expected a mapping",
    "model_type": "expected a mapping",
    "model_attributes_type": "expected a mapping",
    "string_too_short": "expected text, not nothing",
    "too_short": "expected at least one item",
    "too_long": "expected fewer items",
    "missing": "is required",
    "extra_forbidden": "is an unknown key",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
}
_WITHOUT_VALUE = {"missing", "extra_forbidden", "too_short", "string_too_short"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake at a path of the merged document."""

    path: Path
    message: str
    value: str | None = None
    hint: str = ""


def findings(errors: Iterable[ErrorDetails]) -> Iterator[Finding]:
    """Each of pydantic's errors, in the order they were found."""
    for error in errors:
        path = tuple(error["loc"])
        value = error["input"]
        is_shown = error["type"] not in _WITHOUT_VALUE and "env" not in path
        yield Finding(
            path=tuple(step for step in path if step not in (FLAT, NESTED)),
            message=_message(error),
            value=shown(value) if is_shown else None,
            hint=_hint(error, path, value),
        )


def _message(error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == RULE:
        return str(context["expected"])
    if kind == "literal_error":
        return f"expected {context['expected']}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"expected {words} {context[key]}"
    if kind == "string_pattern_mismatch":
        return f"expected text that matches {context['pattern']}"
    return _KINDS.get(kind, error["msg"])


def _hint(error: ErrorDetails, path: Path, value: object) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == RULE:
        return str(context["hint"])
    if kind == "extra_forbidden":
        return key_hint(path)
    if kind == "literal_error" and isinstance(value, str):
        choices = [each.strip("' ") for each in context["expected"].replace(" or ", ",").split(",")]
        old = _OLD_TYPES.get(value) if path[-1:] == ("type",) else None
        return old or did_you_mean(value, choices)
    if kind == "string_type" and isinstance(value, int | float):
        return "Put it in quotes."
    if kind == "bool_type" and str(value).lower() in ("yes", "on", "no", "off"):
        return f"Did you mean {'true' if str(value).lower() in ('yes', 'on') else 'false'}?"
    return ""
